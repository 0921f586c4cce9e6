// Prompts with heads of 128 elements.

#include "kernels/cuda/attend_prompt.cuh"

namespace winnow::kernels::cuda {

void start_prompt_128(const PromptHead* heads, const PromptLaunch& launch) {
  start_prompt<128>(heads, launch);
}

}  // namespace winnow::kernels::cuda
