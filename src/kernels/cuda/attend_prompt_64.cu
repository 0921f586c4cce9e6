// Prompts with heads of 64 elements.

#include "kernels/cuda/attend_prompt.cuh"

namespace winnow::kernels::cuda {

void start_prompt_64(const PromptHead* heads, const PromptLaunch& launch) {
  start_prompt<64>(heads, launch);
}

}  // namespace winnow::kernels::cuda
