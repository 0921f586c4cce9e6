// Moving the kept rows of many heads together in one launch.

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/move.cuh"

namespace winnow::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 6;

// Mapping: blockIdx.y = head; blockIdx.x = one strip of its keys, one of its values, or the positions, scores or mass.
// Bytes: each moved row read and written once, 4 a row of slots for each strip. Limited by memory: 24 KiB a block are under
// way, four blocks a multiprocessor.
__global__ void __launch_bounds__(kThreads, 4)
    compact_kernel(uint32_t key_bytes, uint32_t value_bytes, const HeadArrays* heads,
                   const Quota* quotas, Slots slots, int n_strips) {
  const HeadArrays head = heads[blockIdx.y];
  const int n_keep = quotas[blockIdx.y].n_keep;
  if (n_keep >= head.n) {
    return;
  }
  const int32_t* const of_head = slots.slots + blockIdx.y * slots.stride;
  const int part = static_cast<int>(blockIdx.x);
  if (part < n_strips) {
    move_strip<uint4, kThreads, kUnroll>(cut_strip(head.keys, key_bytes, n_strips, part), of_head,
                                         n_keep);
  } else if (part < 2 * n_strips) {
    move_strip<uint4, kThreads, kUnroll>(
        cut_strip(head.values, value_bytes, n_strips, part - n_strips), of_head, n_keep);
  } else if (part == 2 * n_strips) {
    move_strip<int32_t, kThreads, kUnroll>(number_strip(head.positions), of_head, n_keep);
  } else if (part == 2 * n_strips + 1) {
    if (head.scores != nullptr) {
      move_strip<float, kThreads, kUnroll>(number_strip(head.scores), of_head, n_keep);
    }
  } else if (head.mass != nullptr) {
    move_strip<long long, kThreads, kUnroll>(number_strip(head.mass), of_head, n_keep);
  }
}

// Mapping: blockIdx.x = some rows, a thread 16 bytes of a key and of a value at a time, or a number.
__global__ void __launch_bounds__(kThreads)
    copy_kernel(int key_pieces, int value_pieces, HeadArrays from, HeadArrays to,
                const int32_t* slots, int n) {
  const int first = static_cast<int>(blockIdx.x) * kThreads;
  const int end = min(first + kThreads, n);
  const auto copy_pieces = [&](const std::byte* source, std::byte* target, int n_pieces) {
    const auto* const pieces = reinterpret_cast<const uint4*>(source);
    auto* const copies = reinterpret_cast<uint4*>(target);
    for (int i = static_cast<int>(threadIdx.x); i < (end - first) * n_pieces; i += kThreads) {
      const int row = first + i / n_pieces;
      copies[static_cast<size_t>(row) * n_pieces + i % n_pieces] =
          pieces[static_cast<size_t>(slots[row]) * n_pieces + i % n_pieces];
    }
  };
  copy_pieces(from.keys, to.keys, key_pieces);
  copy_pieces(from.values, to.values, value_pieces);
  const int row = first + static_cast<int>(threadIdx.x);
  if (row < end) {
    to.positions[row] = from.positions[slots[row]];
    to.scores[row] = from.scores[slots[row]];
    if (to.mass != nullptr) {
      to.mass[row] = from.mass[slots[row]];
    }
  }
}

}  // namespace

void copy_rows(const RowFormat& format, const HeadArrays& from, const HeadArrays& to,
               const int32_t* slots, int n, const Stream& stream) {
  check_head_dim(format.head_dim);
  if (n == 0) {
    return;
  }
  copy_kernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0, stream.get()>>>(
      static_cast<int>(format.key_bytes() / sizeof(uint4)),
      static_cast<int>(format.value_bytes() / sizeof(uint4)), from, to, slots, n);
  check(cudaGetLastError(), "copying rows");
}

void check_head_dim(int head_dim) {
  if (std::ranges::find(kHeadDims, head_dim) != std::end(kHeadDims)) {
    return;
  }
  std::string allowed;
  for (const int dim : kHeadDims) {
    allowed += (allowed.empty() ? "" : ", ") + std::to_string(dim);
  }
  throw Error(ErrorCode::kUnsupported, "heads of " + std::to_string(head_dim) +
                                           " elements have no kernel on the GPU; those of " +
                                           allowed + " have");
}

void compact(const RowFormat& format, const Heads& heads, const Quota* quotas, const Slots& slots,
             const Stream& stream) {
  check_head_dim(format.head_dim);
  if (heads.n_heads == 0) {
    return;
  }
  // Whole rows where there are heads enough: what lies together in memory is then read together. Else strips of at least 64 bytes.
  int n_strips = 1;
  const size_t smaller = std::min(format.key_bytes(), format.value_bytes());
  while (2 * n_strips * heads.n_heads < device_limits().n_multiprocessors &&
         smaller / static_cast<size_t>(2 * n_strips) >= 64) {
    n_strips *= 2;
  }
  const dim3 grid(static_cast<unsigned>(2 * n_strips + 3), static_cast<unsigned>(heads.n_heads));
  compact_kernel<<<grid, kThreads, 0, stream.get()>>>(static_cast<uint32_t>(format.key_bytes()),
                                                      static_cast<uint32_t>(format.value_bytes()),
                                                      heads.heads, quotas, slots, n_strips);
  check(cudaGetLastError(), "moving rows");
}

}  // namespace winnow::kernels::cuda
