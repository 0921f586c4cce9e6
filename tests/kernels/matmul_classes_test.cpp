// Which batch sizes of ggml's matrix multiply give the same bits: the table of docs/decisions/determinism.md. The engine
// pads prompts to one class because of it.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "kernels/cpu_backend.h"

namespace winnow {
namespace {

constexpr int kIn = 768;
constexpr int kOut = 96;
constexpr int kMostRows = 300;

std::vector<float> normal_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (float& x : floats) {
    x = normal(random);
  }
  return floats;
}

// weights [kOut, kIn] of `type` times the first n_rows of x; returns [n_rows, kOut].
std::vector<float> multiply(ggml_type type, const std::vector<float>& x, int n_rows,
                            int n_threads) {
  kernels::CpuBackend backend(n_threads);
  const ggml_init_params params{.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                .mem_buffer = nullptr,
                                .no_alloc = true};
  const ggml_context_ptr context(ggml_init(params));
  ggml_tensor* const w = ggml_new_tensor_2d(context.get(), type, kIn, kOut);
  ggml_tensor* const b = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kIn, n_rows);
  ggml_tensor* const product = ggml_mul_mat(context.get(), w, b);
  ggml_cgraph* const graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, product);
  const ggml_backend_buffer_ptr buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(context.get(), backend.buffer_type()));
  const auto weights = normal_floats(static_cast<size_t>(kIn) * kOut, 1);
  std::vector<uint8_t> quantized(ggml_nbytes(w));
  if (type == GGML_TYPE_F32) {
    std::memcpy(quantized.data(), weights.data(), quantized.size());
  } else {
    ggml_quantize_chunk(type, weights.data(), quantized.data(), 0, kOut, kIn, nullptr);
  }
  ggml_backend_tensor_set(w, quantized.data(), 0, quantized.size());
  ggml_backend_tensor_set(b, x.data(), 0, ggml_nbytes(b));
  backend.compute(graph);
  std::vector<float> out(static_cast<size_t>(n_rows) * kOut);
  ggml_backend_tensor_get(product, out.data(), 0, out.size() * sizeof(float));
  return out;
}

void expect_one_class(ggml_type type, const std::vector<int>& batch_sizes) {
  const auto x = normal_floats(static_cast<size_t>(kIn) * kMostRows, 2);
  const auto all = multiply(type, x, batch_sizes.back(), 1);
  for (const int n_rows : batch_sizes) {
    for (const int n_threads : {1, 2}) {
      const auto some = multiply(type, x, n_rows, n_threads);
      EXPECT_EQ(0, std::memcmp(some.data(), all.data(), some.size() * sizeof(float)))
          << ggml_type_name(type) << ", " << n_rows << " rows, " << n_threads << " threads";
    }
  }
}

TEST(MatmulClasses, TheseTypesGiveTheSameBitsForEveryBatch) {
  for (const ggml_type type :
       {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0}) {
    expect_one_class(type, {1, 2, 3, 5, 7, 8, 9, 31, 64, 100, kMostRows});
  }
}

TEST(MatmulClasses, FloatsGiveTheSameBitsFromTwoRowsOn) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16}) {
    expect_one_class(type, {2, 3, 5, 7, 8, 9, 31, 64, 100, kMostRows});
  }
}

TEST(MatmulClasses, KQuantsGiveTheSameBitsUpToSevenRowsAndFromEightOn) {
  for (const ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
    expect_one_class(type, {1, 2, 3, 5, 7});
    expect_one_class(type, {8, 9, 31, 64, 100, kMostRows});
  }
}

}  // namespace
}  // namespace winnow
