#include "model/weight_speed.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "kernels/cpu_backend.h"
#include "model/weight_expansion.h"

namespace winnow::model {
namespace {

// As much work for a sample as a thread does in a millisecond or two, and rows enough for each to have a share.
constexpr double kSampleFlops = 5e7;
constexpr int64_t kRowsPerThread = 64;
constexpr int kRepetitions = 3;  // after one that warms up

double ms_of(const auto& action) {
  const Stopwatch stopwatch;
  action();
  return stopwatch.ms();
}

int64_t sample_rows(const ggml_tensor* matrix, int n_tokens, int n_threads) {
  const double flops_of_row = 2.0 * static_cast<double>(matrix->ne[0]) * n_tokens;
  const auto n_wanted = static_cast<int64_t>(kSampleFlops / flops_of_row);
  const int64_t n_rows = (n_wanted + kRowsPerThread - 1) / kRowsPerThread * kRowsPerThread;
  return std::min(std::max(n_rows, kRowsPerThread * n_threads), matrix->ne[1]);
}

// Some rows of one matrix, which stands for all that have its type and shape.
struct Sample {
  ggml_tensor* rows;  // [n_in, n_sampled]
  double n_times;     // the elements of all of them, by those of the sample
};

// Samples of the layers' matrices that would be expanded.
class Samples {
 public:
  Samples(const GgufFile& file, WeightType type, int n_tokens, int n_threads) {
    const auto matrices = matrices_to_expand(file, {.type = type, .is_for_prompts = true});
    std::map<std::tuple<ggml_type, int64_t, int64_t>, std::vector<const ggml_tensor*>> alike;
    for (const ggml_tensor* matrix : matrices) {
      alike[{matrix->type, matrix->ne[0], matrix->ne[1]}].push_back(matrix);
    }
    context_.reset(ggml_init({.mem_size = (alike.size() + 1) * ggml_tensor_overhead(),
                              .mem_buffer = nullptr,
                              .no_alloc = true}));
    for (const auto& [shape, group] : alike) {
      const ggml_tensor* matrix = group[group.size() / 2];
      const int64_t n_rows = sample_rows(matrix, n_tokens, n_threads);
      ggml_tensor* rows = ggml_new_tensor_2d(context_.get(), matrix->type, matrix->ne[0], n_rows);
      rows->data = matrix->data;
      rows->buffer = matrix->buffer;
      all_.push_back({rows, static_cast<double>(group.size()) * static_cast<double>(matrix->ne[1]) /
                                static_cast<double>(n_rows)});
    }
  }

  const std::vector<Sample>& all() const { return all_; }
  std::vector<const ggml_tensor*> tensors() const {
    std::vector<const ggml_tensor*> tensors;
    for (const Sample& sample : all_) {
      tensors.push_back(sample.rows);
    }
    return tensors;
  }

 private:
  ggml_context_ptr context_;
  std::vector<Sample> all_;
};

// One matrix times a batch.
class Product {
 public:
  Product(ggml_tensor* matrix, int n_tokens, kernels::CpuBackend& backend)
      : backend_(backend),
        context_(ggml_init({.mem_size = 4 * ggml_tensor_overhead() + ggml_graph_overhead(),
                            .mem_buffer = nullptr,
                            .no_alloc = true})),
        allocator_(ggml_gallocr_new(backend.buffer_type())) {
    ggml_tensor* x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, matrix->ne[0], n_tokens);
    ggml_set_input(x);
    graph_ = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph_, ggml_mul_mat(context_.get(), matrix, x));
    if (!ggml_gallocr_alloc_graph(allocator_.get(), graph_)) {
      throw Error(ErrorCode::kResourceExhausted, "no memory for measuring weights");
    }
    std::vector<float> values(static_cast<size_t>(ggml_nelements(x)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i * 7919 % 1009) / 504.5F - 1.0F;
    }
    ggml_backend_tensor_set(x, values.data(), 0, ggml_nbytes(x));
  }

  double compute_ms() {
    return ms_of([this] { backend_.compute(graph_); });
  }

 private:
  kernels::CpuBackend& backend_;
  ggml_context_ptr context_;
  ggml_gallocr_ptr allocator_;
  ggml_cgraph* graph_;
};

}  // namespace

WeightSpeed measure_weight_speed(const GgufFile& file, WeightType type, int n_tokens,
                                 int n_threads) {
  const Samples samples(file, type, n_tokens, n_threads);
  // Into fresh memory each time, as it will be.
  std::unique_ptr<ExpandedMatrices> expanded;
  double samples_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRepetitions; ++i) {
    expanded = std::make_unique<ExpandedMatrices>(samples.tensors(), expanded_type(type));
    samples_ms = std::min(samples_ms, ms_of([&] { expanded->convert(n_threads); }));
  }
  kernels::CpuBackend backend(n_threads);
  WeightSpeed speed;
  double n_elements = 0;
  double n_sampled = 0;
  for (size_t i = 0; i < samples.all().size(); ++i) {
    const Sample& sample = samples.all()[i];
    Product stored(sample.rows, n_tokens, backend);
    Product other(expanded->tensor(i), n_tokens, backend);
    stored.compute_ms();
    other.compute_ms();
    double file_ms = std::numeric_limits<double>::infinity();
    double expanded_ms = file_ms;
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {  // in turn: noise is shared
      file_ms = std::min(file_ms, stored.compute_ms());
      expanded_ms = std::min(expanded_ms, other.compute_ms());
    }
    speed.file_ms += file_ms * sample.n_times / n_tokens;
    speed.expanded_ms += expanded_ms * sample.n_times / n_tokens;
    n_sampled += static_cast<double>(ggml_nelements(sample.rows));
    n_elements += static_cast<double>(ggml_nelements(sample.rows)) * sample.n_times;
  }
  speed.expand_ms = n_sampled > 0 ? samples_ms * n_elements / n_sampled : 0;
  return speed;
}

}  // namespace winnow::model
