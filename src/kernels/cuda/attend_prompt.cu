// Starting the attention of prompts.

#include <climits>
#include <string>

#include "base/error.h"
#include "kernels/cuda/attend_prompt.cuh"

namespace winnow::kernels::cuda {
namespace {

void start(int head_dim, const PromptHead* heads, const PromptLaunch& launch) {
  switch (head_dim) {
    case 64:
      return start_prompt_64(heads, launch);
    case 80:
      return start_prompt_80(heads, launch);
    case 96:
      return start_prompt_96(heads, launch);
    case 128:
      return start_prompt_128(heads, launch);
    default:
      return start_prompt_256(heads, launch);
  }
}

// Mapping: block = head, thread = one token; parts in order, to the first of them.
__global__ void merge_sums_kernel(const PromptHead* heads, int n_parts) {
  const PromptHead head = heads[blockIdx.x];
  for (int token = static_cast<int>(threadIdx.x); token < head.n_tokens;
       token += static_cast<int>(blockDim.x)) {
    const auto of_part = [&](int part) {
      return head.sums[static_cast<size_t>(part) * head.n_tokens + token];
    };
    float highest = -INFINITY;
    for (int part = 0; part < n_parts; ++part) {
      highest = fmaxf(highest, of_part(part).highest);
    }
    const float base = highest == -INFINITY ? 0.0F : highest;
    float sum = 0.0F;
    for (int part = 0; part < n_parts; ++part) {
      const float factor = exp_nonpositive(of_part(part).highest - base);
      sum = factor == 0.0F ? sum : __fmaf_rn(of_part(part).sum, factor, sum);
    }
    head.sums[token] = {highest, sum};
  }
}

}  // namespace

void attend_prompt(const DecodeShape& shape, const PromptHead* heads, int n, int most_tokens,
                   const Stream& stream) {
  check_attended(shape.format);
  if (n == 0 || most_tokens == 0) {
    return;
  }
  start(shape.format.head_dim, heads,
        {.type = shape.format.key_type,
         .group = shape.gqa_group_size,
         .n_heads = shape.gqa_group_size * shape.n_kv_heads,
         .n = n,
         .most_tokens = most_tokens,
         .has_output = true,
         .n_parts = 1,
         .part_length = INT_MAX,
         .scale = shape.scale,
         .stream = stream.get()});
}

void sum_weights(const DecodeShape& shape, const PromptHead* heads, int n, int most_tokens,
                 int n_parts, const Stream& stream) {
  check_attended(shape.format);
  if (n == 0 || most_tokens == 0 || n_parts == 0) {
    return;
  }
  start(shape.format.head_dim, heads,
        {.type = shape.format.key_type,
         .group = 1,
         .n_heads = shape.gqa_group_size * shape.n_kv_heads,
         .n = n,
         .most_tokens = most_tokens,
         .has_output = false,
         .n_parts = n_parts,
         .part_length = kSumsPart,
         .scale = shape.scale,
         .stream = stream.get()});
  if (n_parts > 1) {
    constexpr int kThreads = 64;
    merge_sums_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream.get()>>>(heads, n_parts);
    check(cudaGetLastError(), "summing up weights");
  }
}

}  // namespace winnow::kernels::cuda
