// Queries laid out for tensor cores, once for all rows that they meet.
//
// A lane is one query head of one token, token-major (kernels/attend.h). An image holds kLanes of them: their parts (stage_query()),
// each in panels (warpgroup.cuh), and what weights are made with. Of each 32 elements they lie in an order of their own, in
// which four threads get what they need of a key with one load of 16 bytes each: of the two steps of 16 the columns 2 t, 2 t + 1,
// 2 t + 8 and 2 t + 9 of step s are elements 8 t + 4 s … + 3.
#pragma once

#include <cfloat>
#include <climits>

#include "kernels/cuda/column_mass.h"
#include "kernels/cuda/prompt_tiles.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace winnow::kernels::cuda {

// What a lane's weights are made with: 2^(product · factor - base) · share.
struct alignas(16) LaneTerms {
  float factor;
  float base;
  float share;
  int pos;
};

template <class T, int kDim, int kLanes>
struct LaneImage {
  static constexpr int kParts = PromptTile<T, kDim>::kParts;
  static constexpr int kSteps = (kDim + 31) / 32 * 2;  // of 16 elements
  static constexpr int kPanels = (kDim + kPanel - 1) / kPanel;
  static constexpr int kPanelBytes = kLanes * kPanelRowBytes;
  static constexpr int kPartBytes = kPanels * kPanelBytes;
  static constexpr int kTermsAt = kParts * kPartBytes;
  static constexpr int kUsedBytes = kTermsAt + kLanes * static_cast<int>(sizeof(LaneTerms));
  static constexpr int kBytes = (kUsedBytes + 1023) / 1024 * 1024;
};

// How the lanes of heads lie: slices of each, the query heads of a window or all together, and their images one after the other.
struct LaneLayout {
  int group;     // query heads beside each other in a slice
  int n_slices;  // of a KV head
  int n_images;  // of a slice
  size_t sums_stride;
  size_t token_stride;
  float scale;
};

constexpr int threads_of_lane(int n_lanes) {
  return n_lanes > 64 ? 4 : 8;
}

// Mapping: block = image, blockIdx.y = head, some threads a lane, each 16 bytes of the image at a time. Limited by its launch.
template <class T, int kDim, int kLanes>
__global__ void __launch_bounds__(threads_of_lane(kLanes) * kLanes)
    write_images_kernel(const MassHead* heads, LaneLayout layout, std::byte* images) {
  using Image = LaneImage<T, kDim, kLanes>;
  constexpr int kThreadsPerLane = threads_of_lane(kLanes);
  const MassHead head = heads[blockIdx.y];
  const int slice = static_cast<int>(blockIdx.x) / layout.n_images;
  const int first_lane = static_cast<int>(blockIdx.x) % layout.n_images * kLanes;
  const int lane = static_cast<int>(threadIdx.x) / kThreadsPerLane;
  const int sub = static_cast<int>(threadIdx.x) % kThreadsPerLane;
  const int n_lanes = head.n_tokens * layout.group;
  if (first_lane >= n_lanes) {
    return;
  }
  const int of_slice = first_lane + lane;
  const bool is_lane = of_slice < n_lanes;
  const int token = is_lane ? of_slice / layout.group : 0;
  const int place = head.n_ring > 0 ? (head.first_pos + token) % head.n_ring : token;
  const float* const q = head.q + static_cast<size_t>(place) * layout.token_stride +
                         static_cast<size_t>(slice + of_slice % layout.group) * kDim;
  // Two elements of each of four threads: what 16 bytes of the image hold.
  const auto load = [&](int piece, float(&x)[8]) {
    const int first = piece / 4 * 32 + piece / 2 % 2 * 4 + piece % 2 * 2;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const bool is_there = is_lane && piece / 4 * 32 + t * 8 < kDim;
      const float2 two =
          is_there ? __ldg(reinterpret_cast<const float2*>(q + first + t * 8)) : make_float2(0, 0);
      x[2 * t] = two.x;
      x[2 * t + 1] = two.y;
    }
  };
  float most = 0.0F;
  bool is_finite = true;
  for (int piece = sub; piece < Image::kPanels * 8; piece += kThreadsPerLane) {
    float x[8];
    load(piece, x);
#pragma unroll
    for (const float element : x) {
      most = fmaxf(most, fabsf(element));
      is_finite = is_finite && fabsf(element) <= FLT_MAX;
    }
  }
#pragma unroll
  for (int offset = 1; offset < kThreadsPerLane; offset *= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
    is_finite = __shfl_xor_sync(kAllLanes, is_finite ? 1 : 0, offset) != 0 && is_finite;
  }
  const QueryScale query_scale(most);
  std::byte* const image =
      images + (static_cast<size_t>(blockIdx.y) * layout.n_slices * layout.n_images + blockIdx.x) *
                   Image::kBytes;
  for (int piece = sub; piece < Image::kPanels * 8; piece += kThreadsPerLane) {
    float x[8];
    load(piece, x);
    T parts[8][Image::kParts];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      split(is_finite ? x[i] * query_scale.down() : 0.0F, parts[i]);
    }
#pragma unroll
    for (int part = 0; part < Image::kParts; ++part) {
      const auto two = [&](int i) { return pack(parts[2 * i][part], parts[2 * i + 1][part]); };
      *reinterpret_cast<uint4*>(image + part * Image::kPartBytes + piece / 8 * Image::kPanelBytes +
                                swapped(lane, piece % 8)) =
          make_uint4(two(0), two(1), two(2), two(3));
    }
  }
  if (sub == 0) {
    LaneTerms terms{0.0F, 0.0F, 0.0F, INT_MAX};
    const WeightSum sum =
        is_lane ? head.sums[slice * layout.sums_stride + of_slice] : WeightSum{0.0F, 0.0F};
    // Of queries that see nothing, or are no numbers, there is nothing to count.
    if (is_finite && sum.sum > 0.0F && sum.sum <= FLT_MAX && fabsf(sum.highest) <= FLT_MAX) {
      // In doubles what rounding of the factor and of the base does is put into the share, so that the highest score has its weight.
      constexpr double kLog2E = 1.4426950408889634;
      const double factor = static_cast<double>(query_scale.up()) * layout.scale * kLog2E;
      terms.factor = static_cast<float>(factor);
      const double base = sum.highest * kLog2E * (static_cast<double>(terms.factor) / factor);
      terms.base = static_cast<float>(base);
      constexpr double kLn2 = 0.6931471805599453;
      terms.share = static_cast<float>((1 + (static_cast<double>(terms.base) - base) * kLn2) /
                                       static_cast<double>(sum.sum));
    }
    terms.pos = is_lane ? head.first_pos + token : INT_MAX;
    *reinterpret_cast<LaneTerms*>(image + Image::kTermsAt + lane * sizeof(LaneTerms)) = terms;
  }
}

}  // namespace winnow::kernels::cuda
