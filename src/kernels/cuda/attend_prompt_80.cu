// Prompts with heads of 80 elements.

#include "kernels/cuda/attend_prompt.cuh"

namespace winnow::kernels::cuda {

void start_prompt_80(const PromptHead* heads, const PromptLaunch& launch) {
  start_prompt<80>(heads, launch);
}

}  // namespace winnow::kernels::cuda
