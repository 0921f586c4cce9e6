// Results of CUDA calls to errors.
#pragma once

#include <cuda_runtime_api.h>

namespace winnow::kernels::cuda {

// Throws resource_exhausted for want of memory and internal for any other failure; `what` says what was tried.
void check(cudaError_t result, const char* what);

}  // namespace winnow::kernels::cuda
