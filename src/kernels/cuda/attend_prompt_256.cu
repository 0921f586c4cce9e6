// Prompts with heads of 256 elements.

#include "kernels/cuda/attend_prompt.cuh"

namespace winnow::kernels::cuda {

void start_prompt_256(const PromptHead* heads, const PromptLaunch& launch) {
  start_prompt<256>(heads, launch);
}

}  // namespace winnow::kernels::cuda
