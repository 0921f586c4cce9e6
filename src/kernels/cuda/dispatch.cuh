// From values known at run time to the kernels compiled for them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cache/rows.h"
#include "kernels/cuda/device_rows.h"

namespace winnow::kernels::cuda {

// Calls body(T()) with the type that elements have on the device.
template <class Body>
void with_row_type(cache::RowType type, const Body& body) {
  switch (type) {
    case cache::RowType::kF32:
      return body(float());
    case cache::RowType::kF16:
      return body(__half());
    case cache::RowType::kBf16:
      return body(__nv_bfloat16());
  }
}

// Calls body with one of kHeadDims as a constant; check_head_dim() has passed.
template <class Body>
void with_head_dim(int head_dim, const Body& body) {
  switch (head_dim) {
    case 64:
      return body(std::integral_constant<int, 64>());
    case 80:
      return body(std::integral_constant<int, 80>());
    case 96:
      return body(std::integral_constant<int, 96>());
    case 128:
      return body(std::integral_constant<int, 128>());
    default:
      return body(std::integral_constant<int, 256>());
  }
}

}  // namespace winnow::kernels::cuda
