// Decoding with heads of 128 elements.

#include "kernels/cuda/attend_decode.cuh"

namespace winnow::kernels::cuda {

void start_decode_128(const DecodeParts& plan, const DecodeLaunch& launch) {
  start_decode<128>(plan, launch);
}

}  // namespace winnow::kernels::cuda
