// Decoding with heads of 64 elements.

#include "kernels/cuda/attend_decode.cuh"

namespace winnow::kernels::cuda {

void start_decode_64(const DecodeParts& plan, const DecodeLaunch& launch) {
  start_decode<64>(plan, launch);
}

}  // namespace winnow::kernels::cuda
