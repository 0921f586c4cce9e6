// Prompts with heads of 96 elements.

#include "kernels/cuda/attend_prompt.cuh"

namespace winnow::kernels::cuda {

void start_prompt_96(const PromptHead* heads, const PromptLaunch& launch) {
  start_prompt<96>(heads, launch);
}

}  // namespace winnow::kernels::cuda
