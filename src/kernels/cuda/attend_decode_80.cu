// Decoding with heads of 80 elements.

#include "kernels/cuda/attend_decode.cuh"

namespace winnow::kernels::cuda {

void start_decode_80(const DecodeParts& plan, const DecodeLaunch& launch) {
  start_decode<80>(plan, launch);
}

}  // namespace winnow::kernels::cuda
