// Starting the attention of prompts.

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
         .scale = shape.scale,
         .stream = stream.get()});
}

}  // namespace winnow::kernels::cuda
