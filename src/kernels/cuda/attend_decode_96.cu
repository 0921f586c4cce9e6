// Decoding with heads of 96 elements.

#include "kernels/cuda/attend_decode.cuh"

namespace winnow::kernels::cuda {

void start_decode_96(const DecodeParts& plan, const DecodeLaunch& launch) {
  start_decode<96>(plan, launch);
}

}  // namespace winnow::kernels::cuda
