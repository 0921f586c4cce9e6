#include "support/ggml_attention.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"

namespace winnow::test {
namespace {

using model::GraphBuilder;
using model::Hyperparameters;
using model::Projections;

constexpr int64_t kCachePad = 256;  // libllama rounds the rows it attends to up to this
constexpr size_t kMaxNodes = 65536;

int64_t padded(int64_t n) {
  return (n + kCachePad - 1) / kCachePad * kCachePad;
}

class ForwardPass {
 public:
  ForwardPass(const model::Model& model, int64_t n_tokens, int n_threads)
      : model_(model),
        hyper_(model.hyper()),
        n_rows_(padded(n_tokens)),
        backend_(ggml_backend_cpu_init()),
        allocator_(ggml_gallocr_new(ggml_backend_cpu_buffer_type())) {
    ggml_backend_cpu_set_n_threads(backend_.get(), n_threads);
    make_cache();
  }

  // Logits of tokens at positions first, first + 1, …: [n_tokens, n_vocab].
  std::vector<float> run(std::span<const int32_t> tokens, int64_t first) {
    const auto n_tokens = static_cast<int64_t>(tokens.size());
    n_attended_ = padded(first + n_tokens);
    make_graph(n_tokens);
    if (!ggml_gallocr_alloc_graph(allocator_.get(), graph_)) {
      throw std::runtime_error("cannot allocate the graph");
    }
    set_inputs(tokens, first);
    if (ggml_backend_graph_compute(backend_.get(), graph_) != GGML_STATUS_SUCCESS) {
      throw std::runtime_error("cannot compute the graph");
    }
    std::vector<float> values(static_cast<size_t>(ggml_nelements(logits_)));
    ggml_backend_tensor_get(logits_, values.data(), 0, ggml_nbytes(logits_));
    return values;
  }

 private:
  // Zeroed, because masked rows are multiplied with their weight of 0.
  void make_cache() {
    const auto n_layers = static_cast<size_t>(hyper_.n_layers);
    cache_ctx_.reset(ggml_init({.mem_size = (2 * n_layers + 1) * ggml_tensor_overhead(),
                                .mem_buffer = nullptr,
                                .no_alloc = true}));
    for (size_t layer = 0; layer < n_layers; ++layer) {
      keys_.push_back(ggml_new_tensor_2d(cache_ctx_.get(), GGML_TYPE_F32, n_kv_values(), n_rows_));
      values_.push_back(
          ggml_new_tensor_2d(cache_ctx_.get(), GGML_TYPE_F32, n_rows_, n_kv_values()));
    }
    cache_buffer_.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(cache_ctx_.get(), ggml_backend_cpu_buffer_type()));
    ggml_backend_buffer_clear(cache_buffer_.get(), 0);
  }

  int64_t n_kv_values() const { return int64_t{hyper_.head_dim} * hyper_.n_kv_heads; }

  ggml_tensor* input(ggml_type type, int64_t n0, int64_t n1) {
    ggml_tensor* tensor = ggml_new_tensor_2d(ctx_.get(), type, n0, n1);
    ggml_set_input(tensor);
    return tensor;
  }

  void make_graph(int64_t n_tokens) {
    ctx_.reset(ggml_init({.mem_size = kMaxNodes * ggml_tensor_overhead() +
                                      ggml_graph_overhead_custom(kMaxNodes, false),
                          .mem_buffer = nullptr,
                          .no_alloc = true}));
    graph_ = ggml_new_graph_custom(ctx_.get(), kMaxNodes, false);
    tokens_ = input(GGML_TYPE_I32, n_tokens, 1);
    positions_ = input(GGML_TYPE_I32, n_tokens, 1);
    key_rows_ = input(GGML_TYPE_I64, n_tokens, 1);
    value_rows_ = input(GGML_TYPE_I64, n_tokens * n_kv_values(), 1);
    mask_ = input(GGML_TYPE_F32, n_attended_, n_tokens);
    swa_mask_ = input(GGML_TYPE_F32, n_attended_, n_tokens);

    const GraphBuilder build = {.ctx = ctx_.get(),
                                .hyper = hyper_,
                                .weights = model_.weights(),
                                .positions = positions_,
                                .n_ctx = static_cast<int>(n_rows_)};
    ggml_tensor* x = model::embed(build, tokens_);
    for (int layer = 0; layer < hyper_.n_layers; ++layer) {
      const Projections p = model_.family().before_attention(build, layer, x);
      x = model_.family().after_attention(build, layer, x, attend(p, layer));
    }
    logits_ = model::logits(build, x);
    ggml_set_output(logits_);
    ggml_build_forward_expand(graph_, logits_);
  }

  ggml_tensor* attend(const Projections& p, int layer) {
    ggml_context* ctx = ctx_.get();
    ggml_tensor* keys = keys_[static_cast<size_t>(layer)];      // [n_kv_values, n_rows]
    ggml_tensor* values = values_[static_cast<size_t>(layer)];  // [n_rows, n_kv_values]: transposed
    const int64_t n_tokens = p.q->ne[2];
    for (ggml_tensor* projection : {p.q, p.v, p.k}) {
      ggml_build_forward_expand(graph_, projection);
    }
    ggml_tensor* new_keys = ggml_reshape_2d(ctx, p.k, n_kv_values(), n_tokens);
    ggml_build_forward_expand(graph_, ggml_set_rows(ctx, keys, new_keys, key_rows_));
    // Transposed storage: every number is a row of its own.
    ggml_tensor* new_values = ggml_reshape_2d(ctx, p.v, 1, n_kv_values() * n_tokens);
    ggml_tensor* flat = ggml_reshape_2d(ctx, values, 1, ggml_nelements(values));
    ggml_build_forward_expand(graph_, ggml_set_rows(ctx, flat, new_values, value_rows_));

    const size_t size = sizeof(float);
    const auto head_dim = static_cast<size_t>(hyper_.head_dim);
    ggml_tensor* k = ggml_view_3d(ctx, keys, hyper_.head_dim, n_attended_, hyper_.n_kv_heads,
                                  keys->nb[1], head_dim * size, 0);
    ggml_tensor* v = ggml_view_3d(ctx, values, n_attended_, hyper_.head_dim, hyper_.n_kv_heads,
                                  values->nb[1], head_dim * values->nb[1], 0);
    ggml_tensor* q = ggml_permute(ctx, p.q, 0, 2, 1, 3);  // [head_dim, n_tokens, n_heads]
    ggml_tensor* scores = ggml_mul_mat(ctx, k, q);        // [n_attended, n_tokens, n_heads]
    ggml_prec_set_acc(scores, GGML_PREC_F32);
    ggml_tensor* mask = hyper_.swa_window(layer) > 0 ? swa_mask_ : mask_;
    scores =
        ggml_soft_max_ext(ctx, scores, mask, model::attention_scale(model_.family(), hyper_), 0.0F);
    ggml_tensor* attended = ggml_mul_mat(ctx, v, scores);  // [head_dim, n_tokens, n_heads]
    attended = ggml_permute(ctx, attended, 0, 2, 1, 3);
    attended = ggml_cont_2d(ctx, attended, int64_t{hyper_.head_dim} * hyper_.n_heads, n_tokens);
    ggml_build_forward_expand(graph_, attended);
    return attended;
  }

  void set_inputs(std::span<const int32_t> tokens, int64_t first) {
    const auto n_tokens = static_cast<int64_t>(tokens.size());
    std::vector<int32_t> positions;
    std::vector<int64_t> key_rows;
    std::vector<int64_t> value_rows;
    std::vector<float> mask;
    std::vector<float> swa_mask;
    const int swa_window = *std::max_element(hyper_.swa_windows.begin(), hyper_.swa_windows.end());
    for (int64_t i = 0; i < n_tokens; ++i) {
      const int64_t pos = first + i;
      positions.push_back(static_cast<int32_t>(pos));
      key_rows.push_back(pos);
      for (int64_t j = 0; j < n_kv_values(); ++j) {
        value_rows.push_back(j * n_rows_ + pos);
      }
      for (int64_t row = 0; row < n_attended_; ++row) {
        mask.push_back(row <= pos ? 0.0F : -INFINITY);
        swa_mask.push_back(row <= pos && pos - row < swa_window ? 0.0F : -INFINITY);
      }
    }
    const auto set = [](ggml_tensor* tensor, const auto& data) {
      if (tensor->buffer != nullptr) {  // else no node reads it
        ggml_backend_tensor_set(tensor, data.data(), 0, ggml_nbytes(tensor));
      }
    };
    set(tokens_, tokens);
    set(positions_, positions);
    set(key_rows_, key_rows);
    set(value_rows_, value_rows);
    set(mask_, mask);
    set(swa_mask_, swa_mask);
  }

  const model::Model& model_;
  const Hyperparameters& hyper_;
  int64_t n_rows_;
  int64_t n_attended_ = 0;
  ggml_backend_ptr backend_;
  ggml_gallocr_ptr allocator_;
  ggml_context_ptr cache_ctx_;
  ggml_backend_buffer_ptr cache_buffer_;
  std::vector<ggml_tensor*> keys_;
  std::vector<ggml_tensor*> values_;
  ggml_context_ptr ctx_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* tokens_ = nullptr;
  ggml_tensor* positions_ = nullptr;
  ggml_tensor* key_rows_ = nullptr;
  ggml_tensor* value_rows_ = nullptr;
  ggml_tensor* mask_ = nullptr;
  ggml_tensor* swa_mask_ = nullptr;  // of layers with a sliding window
  ggml_tensor* logits_ = nullptr;
};

}  // namespace

std::vector<float> ggml_attention_logits(const model::Model& model, std::span<const int32_t> tokens,
                                         int n_ubatch, int n_threads) {
  ForwardPass pass(model, static_cast<int64_t>(tokens.size()), n_threads);
  std::vector<float> logits;
  for (size_t first = 0; first < tokens.size(); first += static_cast<size_t>(n_ubatch)) {
    const size_t n = std::min(static_cast<size_t>(n_ubatch), tokens.size() - first);
    const std::vector<float> piece =
        pass.run(tokens.subspan(first, n), static_cast<int64_t>(first));
    logits.insert(logits.end(), piece.begin(), piece.end());
  }
  return logits;
}

}  // namespace winnow::test
