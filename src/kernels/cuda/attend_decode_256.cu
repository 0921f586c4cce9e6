// Decoding with heads of 256 elements.

#include "kernels/cuda/attend_decode.cuh"

namespace winnow::kernels::cuda {

void start_decode_256(const DecodeParts& plan, const DecodeLaunch& launch) {
  start_decode<256>(plan, launch);
}

}  // namespace winnow::kernels::cuda
