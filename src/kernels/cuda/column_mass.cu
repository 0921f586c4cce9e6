// Scores once more, and from them weights, each row's summed over all queries that see it.

#include "kernels/cuda/column_mass.h"

#include <algorithm>
#include <climits>

#include "base/error.h"
#include "kernels/attend.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/lane_images.cuh"

namespace winnow::kernels::cuda {
namespace {

// Sizes for heads of kDim elements of T whose lanes come kLanes at a time.
template <class T, int kDim, int kLanes>
struct MassTile {
  using Image = LaneImage<T, kDim, kLanes>;
  static constexpr int kGroups = kDim > 128    ? 2
                                 : kLanes > 64 ? 3
                                               : 4;  // warpgroups, of 64 rows each
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kThreads = 128 * kGroups;
  static constexpr int kStages = std::min(8, static_cast<int>((size_t{222} << 10) / Image::kBytes));
  // How far the warp that fetches may be ahead of others.
  static constexpr int kSlack = std::min(2, kStages - 2);
  static constexpr size_t kBarriersAt = size_t{kStages} * Image::kBytes;
  static constexpr size_t kSharedBytes = kBarriersAt + 2 * kStages * sizeof(Arrival);
};

// Weights, at most 1 but for rounding, as units of 2^-38. Both additions are exact but for the rounding to the units of their sum,
// whose bits are then whole numbers that are added up: of 2^-18, and of 2^-38 for what is left.
class MassUnits {
 public:
  __device__ __forceinline__ void add(float weight0, float share0, float weight1, float share1) {
    const float high0 = __fmaf_rn(weight0, share0, kHigh);
    const float high1 = __fmaf_rn(weight1, share1, kHigh);
    const float low0 = __fmaf_rn(weight0, share0, (kHigh + kLow) - high0);
    const float low1 = __fmaf_rn(weight1, share1, (kHigh + kLow) - high1);
    high_ += __float_as_uint(high0) + __float_as_uint(high1);
    low_ += __float_as_uint(low0) + __float_as_uint(low1);
  }
  // To be called after at most kMostAdded weights, n of them.
  __device__ __forceinline__ void settle(int n) {
    total_ += static_cast<long long>(high_ - static_cast<uint32_t>(n) * kHighBits) << 20;
    total_ += static_cast<int32_t>(low_ - static_cast<uint32_t>(n) * kLowBits);
    high_ = 0;
    low_ = 0;
  }
  __device__ long long total() const { return total_; }

  static constexpr int kMostAdded = 2048;

 private:
  static constexpr float kHigh = 32.0F;      // numbers from it to 64 are 2^-18 apart
  static constexpr float kLow = 0x1.8p-15F;  // around it they are 2^-38 apart
  static constexpr uint32_t kHighBits = 0x42000000;
  static constexpr uint32_t kLowBits = 0x38400000;

  uint32_t high_ = 0;
  uint32_t low_ = 0;
  long long total_ = 0;
};

// A window's weights, in floats.
class WindowUnits {
 public:
  __device__ __forceinline__ void add(float weight0, float share0, float weight1, float share1) {
    sum_ = __fmaf_rn(weight0, share0, sum_);
    sum_ = __fmaf_rn(weight1, share1, sum_);
  }
  __device__ __forceinline__ void settle(int /*n*/) {}
  __device__ long long total() const {
    return __double2ll_rn(static_cast<double>(sum_) * kWindowMassScale);
  }

  static constexpr int kMostAdded = INT_MAX;

 private:
  float sum_ = 0.0F;
};

// A thread's rows of a warpgroup's 64: their keys as the tensor cores take them, and who sees them.
template <class T, int kDim>
struct KeyRows {
  static constexpr int kChunks = (kDim + 31) / 32;  // of 32 elements

  uint4 matrices[2 * kChunks];  // of a step of 16 elements each
  int pos[2];                   // INT_MAX: no query sees the row
  int last_pos;                 // of the rows of the warp that are seen
  bool has_odd;                 // whether one of these may have products that are no numbers

  __device__ __forceinline__ void load(const MassHead& head, int first_row, int lane) {
    last_pos = -1;
    // No element above this, without its sign, makes a product that is infinite.
    constexpr uint32_t kMost = std::is_same_v<T, __half> ? 0x7bff : 0x7180;
    uint32_t largest = 0;
    uint4 keys[2][kChunks];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + lane / 4 + 8 * i;
      const bool is_there = row < head.n;
      const bool is_seen =
          is_there && (head.hidden == nullptr || head.hidden[row] == cache::kVisible);
      pos[i] = is_seen ? __ldg(head.positions + row) : INT_MAX;
      last_pos = is_seen ? max(last_pos, pos[i]) : last_pos;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int d = chunk * 32 + lane % 4 * 8;
        const std::byte* const from =
            head.keys + (static_cast<size_t>(is_there ? row : 0) * kDim + d) * sizeof(T);
        keys[i][chunk] = is_there && d < kDim ? __ldg(reinterpret_cast<const uint4*>(from))
                                              : make_uint4(0, 0, 0, 0);
        const auto note = [&](uint32_t two) {
          largest = is_seen ? __vmaxu2(largest, two & 0x7fff7fff) : largest;
        };
        note(keys[i][chunk].x);
        note(keys[i][chunk].y);
        note(keys[i][chunk].z);
        note(keys[i][chunk].w);
      }
    }
    last_pos = __reduce_max_sync(kAllLanes, last_pos);
    has_odd = __any_sync(kAllLanes, max(largest & 0xffff, largest >> 16) > kMost) != 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const uint4& upper = keys[0][chunk];
      const uint4& lower = keys[1][chunk];
      matrices[2 * chunk] = make_uint4(upper.x, lower.x, upper.y, lower.y);
      matrices[2 * chunk + 1] = make_uint4(upper.z, lower.z, upper.w, lower.w);
    }
#pragma unroll
    for (uint4& m : matrices) {  // where the tensor cores want them from here on
      asm volatile("" : "+r"(m.x), "+r"(m.y), "+r"(m.z), "+r"(m.w));
    }
  }
};

// The weights of an image's lanes to what two rows have; `is_open`: all lanes see all rows, and no product is no number.
template <bool kIsOpen, int kBlocks, class Units>
__device__ __forceinline__ void add_weights(const float (&products)[kBlocks][4],
                                            const LaneTerms* terms, const int (&pos)[2], int lane,
                                            Units (&units)[2]) {
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const LaneTerms first = terms[block * 8 + lane % 4 * 2];
    const LaneTerms second = terms[block * 8 + lane % 4 * 2 + 1];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto weight = [&](float product, const LaneTerms& of_lane) {
        const float w = exp2_quick(__fmaf_rn(product, of_lane.factor, -of_lane.base));
        return kIsOpen || (pos[i] <= of_lane.pos && w <= FLT_MAX) ? w : 0.0F;
      };
      units[i].add(weight(products[block][2 * i], first), first.share,
                   weight(products[block][2 * i + 1], second), second.share);
    }
  }
}

// Mapping: blockIdx.y = one head, whose rows blocks take kRows at a time; warpgroups keep keys in registers, while images of
// lanes pass through shared memory, or stay there where all fit. Flops: 2 an element, row and lane, times 2 (f16) or 3 (bf16) parts,
// which are the limit, beside six instructions for each weight.
template <class T, int kDim, int kLanes, class Units>
__global__ void __launch_bounds__(MassTile<T, kDim, kLanes>::kThreads, 1)
    mass_kernel(const MassHead* heads, LaneLayout layout, size_t mass_stride,
                const std::byte* images) {
  using Tile = MassTile<T, kDim, kLanes>;
  using Image = typename Tile::Image;
  extern __shared__ __align__(1024) std::byte shared[];                       // [kStages] images
  auto* const full = reinterpret_cast<Arrival*>(shared + Tile::kBarriersAt);  // [kStages]
  auto* const empty = full + Tile::kStages;

  const MassHead head = heads[blockIdx.y];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int row = static_cast<int>(blockIdx.x) * Tile::kRows;
  if (row >= head.n) {
    return;
  }
  const int n_images = (head.n_tokens * layout.group + kLanes - 1) / kLanes;  // of a slice
  const bool stays = layout.n_slices * n_images <= Tile::kStages;
  // The first image of a slice with a lane that sees one of the block's rows.
  const int begin =
      stays ? 0
            : min(max(__ldg(head.positions + row) - head.first_pos, 0) * layout.group / kLanes,
                  n_images);
  const int n_of_slice = n_images - begin;
  const int n_uses = layout.n_slices * n_of_slice;
  const auto fetch = [&](int use) {
    const int image = use / n_of_slice * layout.n_images + begin + use % n_of_slice;
    Arrival& arrival = full[use % Tile::kStages];
    arrival.expect(Image::kUsedBytes);
    arrival.fetch(
        shared + use % Tile::kStages * Image::kBytes,
        images + (static_cast<size_t>(blockIdx.y) * layout.n_slices * layout.n_images + image) *
                     Image::kBytes,
        Image::kUsedBytes);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      full[stage].init();
      empty[stage].init(Tile::kThreads);
    }
    fence_arrivals();
    for (int i = 0; i < min(n_uses, Tile::kStages); ++i) {
      fetch(i);
    }
  }
  __syncthreads();

  // Where images stay, a block goes on to more rows.
  const int step = stays ? static_cast<int>(gridDim.x) * Tile::kRows : head.n;
  for (; row < head.n; row += step) {
    const int first_row = row + warp * 16;  // of the warp
    KeyRows<T, kDim> rows;
    rows.load(head, first_row, lane);
    int use = 0;
    for (int slice = 0; slice < layout.n_slices; ++slice) {
      Units units[2];
      int n_added = 0;
      for (int i = begin; i < n_images; ++i, ++use) {
        if (threadIdx.x == 0) {
          const int done = use - 1 - Tile::kSlack;  // by this warp, and soon by all
          if (done >= 0 && done + Tile::kStages < n_uses) {
            empty[done % Tile::kStages].wait(done / Tile::kStages);
            fetch(done + Tile::kStages);
          }
        }
        __syncwarp();
        const int stage = use % Tile::kStages;
        full[stage].wait(use / Tile::kStages);
        const std::byte* const image = shared + stage * Image::kBytes;
        float products[kLanes / 8][4];
        begin_products();
        const uint64_t panel = describe_panel(shared_address(image));
#pragma unroll
        for (int part = Image::kParts - 1; part >= 0; --part) {
#pragma unroll
          for (int k = 0; k < Image::kSteps; ++k) {
            const int from = part * Image::kPartBytes + k / 4 * Image::kPanelBytes + k % 4 * 32;
            multiply_rows(products, rows.matrices[k], panel + from / 16,
                          part < Image::kParts - 1 || k > 0, T());
          }
        }
        submit_products();
        await_products(products);
        const auto* const terms = reinterpret_cast<const LaneTerms*>(image + Image::kTermsAt);
        if (!rows.has_odd && rows.last_pos <= terms[0].pos) {
          add_weights<true>(products, terms, rows.pos, lane, units);
        } else {
          add_weights<false>(products, terms, rows.pos, lane, units);
        }
        if (!stays) {
          empty[stage].arrive();
        }
        n_added += kLanes / 4;
        if (n_added == Units::kMostAdded) {
          units[0].settle(n_added);
          units[1].settle(n_added);
          n_added = 0;
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        units[i].settle(n_added);
        long long sum = units[i].total();
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        const int of_head = first_row + lane / 4 + 8 * i;
        if (lane % 4 == 0 && of_head < head.n) {
          sum = rows.pos[i] == INT_MAX ? 0 : sum;
          long long& mass = head.mass[slice * mass_stride + of_head];
          const long long held = head.decay == 0.0F ? 0 : mass;
          mass = sum + (head.decay == 1.0F || head.decay == 0.0F
                            ? held
                            : static_cast<long long>(static_cast<double>(held) *
                                                     static_cast<double>(head.decay)));
        }
      }
    }
  }
}

// How many blocks a head's rows are for: all of them where images pass through, so many that each multiprocessor has one where
// they stay.
int blocks_of_head(int n_row_blocks, int n_heads, bool stays) {
  const int wanted = device_limits().n_multiprocessors / n_heads;
  return stays ? std::min(n_row_blocks, std::max(wanted, 1)) : n_row_blocks;
}

template <class T, int kDim, int kLanes, class Units>
void launch_mass(const MassLaunch& launch, const LaneLayout& layout, size_t mass_stride,
                 cudaStream_t stream) {
  using Tile = MassTile<T, kDim, kLanes>;
  auto* const kernel = &mass_kernel<T, kDim, kLanes, Units>;
  static const bool is_prepared = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(Tile::kSharedBytes)),
          "preparing column mass");
    return true;
  }();
  static_cast<void>(is_prepared);
  const auto n_heads = static_cast<unsigned>(launch.n);
  write_images_kernel<T, kDim, kLanes>
      <<<dim3(static_cast<unsigned>(layout.n_slices * layout.n_images), n_heads),
         threads_of_lane(kLanes) * kLanes, 0, stream>>>(launch.heads, layout, launch.images);
  check(cudaGetLastError(), "laying out queries");
  const int n_row_blocks = (launch.most_rows + Tile::kRows - 1) / Tile::kRows;
  const bool stays = layout.n_slices * layout.n_images <= Tile::kStages;
  kernel<<<dim3(static_cast<unsigned>(blocks_of_head(n_row_blocks, launch.n, stays)), n_heads),
           Tile::kThreads, Tile::kSharedBytes, stream>>>(launch.heads, layout, mass_stride,
                                                         launch.images);
  check(cudaGetLastError(), "adding up weights");
}

// Products of many lanes at once feed the tensor cores best; single tokens have few.
constexpr int kMostLanes = 128;
constexpr int kManyLanes = 64;
constexpr int kFewLanes = 8;
constexpr int lanes_of_image(int n_lanes, int head_dim) {
  return n_lanes <= 2 * kFewLanes                  ? kFewLanes
         : n_lanes <= kManyLanes || head_dim > 128 ? kManyLanes
                                                   : kMostLanes;
}

// Calls body with that number as a constant.
template <int kDim, class Body>
void with_lanes_of_image(int n_lanes, const Body& body) {
  switch (lanes_of_image(n_lanes, kDim)) {
    case kFewLanes:
      return body(std::integral_constant<int, kFewLanes>());
    case kManyLanes:
      return body(std::integral_constant<int, kManyLanes>());
    default:
      if constexpr (kDim <= 128) {
        return body(std::integral_constant<int, kMostLanes>());
      }
  }
}

template <class Units>
void start(const DecodeShape& shape, const MassLaunch& launch, LaneLayout layout,
           size_t mass_stride, const Stream& stream) {
  check_attended(shape.format);
  if (launch.n == 0 || launch.most_rows == 0 || launch.most_tokens == 0) {
    return;
  }
  const int n_lanes = launch.most_tokens * layout.group;
  const int of_image = lanes_of_image(n_lanes, shape.format.head_dim);
  layout.n_images = (n_lanes + of_image - 1) / of_image;
  with_head_dim(shape.format.head_dim, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    const auto with_lanes = [&](auto element) {
      with_lanes_of_image<kDim>(n_lanes, [&](auto lanes) {
        launch_mass<decltype(element), kDim, decltype(lanes)::value, Units>(
            launch, layout, mass_stride, stream.get());
      });
    };
    if (shape.format.key_type == cache::RowType::kF16) {
      with_lanes(__half());
    } else {
      with_lanes(__nv_bfloat16());
    }
  });
}

LaneLayout layout_of(const DecodeShape& shape, bool is_window) {
  return {.group = is_window ? 1 : shape.gqa_group_size,
          .n_slices = is_window ? shape.gqa_group_size : 1,
          .n_images = 0,
          .sums_stride = 0,
          .token_stride = static_cast<size_t>(shape.gqa_group_size) *
                          static_cast<size_t>(shape.n_kv_heads) *
                          static_cast<size_t>(shape.format.head_dim),
          .scale = shape.scale};
}

}  // namespace

size_t mass_image_bytes(const DecodeShape& shape, int n, int most_tokens, bool is_window) {
  check_attended(shape.format);
  const LaneLayout layout = layout_of(shape, is_window);
  const int n_lanes = most_tokens * layout.group;
  const int of_image = lanes_of_image(n_lanes, shape.format.head_dim);
  const auto n_images = static_cast<size_t>((n_lanes + of_image - 1) / of_image) *
                        static_cast<size_t>(layout.n_slices) * static_cast<size_t>(n);
  size_t bytes = 0;
  with_head_dim(shape.format.head_dim, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    const auto of = [&](auto element) {
      with_lanes_of_image<kDim>(n_lanes, [&](auto lanes) {
        bytes = size_t{LaneImage<decltype(element), kDim, decltype(lanes)::value>::kBytes};
      });
    };
    if (shape.format.key_type == cache::RowType::kF16) {
      of(__half());
    } else {
      of(__nv_bfloat16());
    }
  });
  return bytes * n_images;
}

void add_mass(const DecodeShape& shape, const MassLaunch& launch, const Stream& stream) {
  start<MassUnits>(shape, launch, layout_of(shape, /*is_window=*/false), 0, stream);
}

void sum_window(const DecodeShape& shape, const MassLaunch& launch, size_t sums_stride,
                size_t mass_stride, const Stream& stream) {
  LaneLayout layout = layout_of(shape, /*is_window=*/true);
  layout.sums_stride = sums_stride;
  start<WindowUnits>(shape, launch, layout, mass_stride, stream);
}

}  // namespace winnow::kernels::cuda
