// Selecting rows, alone or together with moving them.

#include "kernels/cuda/select.cuh"

#include <algorithm>
#include <bit>

#include "kernels/cuda/check.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/move.cuh"

namespace winnow::kernels::cuda {
namespace {

constexpr size_t kOwnBytes =
    2048;  // shared memory of a block that is not handed to it, the system's included

// The slots kept of each head.
//
// Mapping: one cluster of blocks a head, each with a range of its scores. Bytes: the scores once (three times what does not
// fit shared memory, from the L2 cache), 4 a kept row. Few heads: limited by the 8 barriers of the cluster. Many: by the
// passes over shared memory, some 40 instructions a score in all.
__global__ void __launch_bounds__(kSelectThreads, 2)
    select_kernel(const HeadArrays* heads, const Quota* quotas, Slots slots, int32_t* n_nan,
                  int n_blocks, int most_kept_keys) {
  extern __shared__ uint4 memory[];
  SelectShared& shared = *reinterpret_cast<SelectShared*>(memory);
  auto* const kept_keys = reinterpret_cast<uint32_t*>(&shared + 1);
  const int head = static_cast<int>(blockIdx.x) / n_blocks;
  select_slots(heads[head], quotas[head], slots.slots + static_cast<size_t>(head) * slots.stride,
               n_nan != nullptr ? n_nan + head : nullptr,
               {n_blocks, static_cast<int>(blockIdx.x) % n_blocks}, shared, kept_keys,
               most_kept_keys);
}

// The same, and the rows moved.
//
// Mapping: one cluster of blocks a head. Where a head has few scores, each block finds all slots by itself, which costs less than
// waiting for the others; then half of the blocks move strips of keys, the others of values. Limited by the chain of dependent
// steps.
__global__ void __launch_bounds__(kSelectThreads, 1)
    select_and_compact_kernel(uint32_t key_bytes, uint32_t value_bytes, const HeadArrays* heads,
                              const Quota* quotas, Slots slots, int32_t* n_nan, int n_blocks,
                              int most_kept_keys, bool is_alone) {
  extern __shared__ uint4 memory[];
  SelectShared& shared = *reinterpret_cast<SelectShared*>(memory);
  auto* const kept_keys = reinterpret_cast<uint32_t*>(&shared + 1);
  const int head_index = static_cast<int>(blockIdx.x) / n_blocks;
  const int rank = static_cast<int>(blockIdx.x) % n_blocks;
  const HeadArrays head = heads[head_index];
  const Quota quota = quotas[head_index];
  int32_t* const of_head = slots.slots + static_cast<size_t>(head_index) * slots.stride;
  const bool tells = n_nan != nullptr && (rank == 0 || !is_alone);
  // Blocks by themselves all write the same slots to the same place.
  const int n_kept = select_slots(head, quota, of_head, tells ? n_nan + head_index : nullptr,
                                  is_alone ? Sharers{1, 0} : Sharers{n_blocks, rank}, shared,
                                  kept_keys, most_kept_keys);
  if (n_kept == head.n) {
    return;
  }
  constexpr int kUnroll = 4;
  const int n_strips = max(n_blocks / 2, 1);
  if (rank < n_strips) {
    move_strip<uint4, kSelectThreads, kUnroll>(cut_strip(head.keys, key_bytes, n_strips, rank),
                                               of_head, n_kept);
  }
  if (n_blocks == 1 || rank >= n_strips) {
    move_strip<uint4, kSelectThreads, kUnroll>(
        cut_strip(head.values, value_bytes, n_strips, rank % n_strips), of_head, n_kept);
  }
  if (rank == 0) {
    move_strip<int32_t, kSelectThreads, kUnroll>(number_strip(head.positions), of_head, n_kept);
  }
  Sharers{n_blocks, rank}.sync();  // all blocks have read the scores that they selected by
  if (rank == n_blocks - 1 && head.scores != nullptr) {
    move_strip<float, kSelectThreads, kUnroll>(number_strip(head.scores), of_head, n_kept);
  }
  if (rank == 0 && head.mass != nullptr) {
    move_strip<long long, kSelectThreads, kUnroll>(number_strip(head.mass), of_head, n_kept);
  }
}

inline constexpr int kMostBlocks =
    8;  // of a cluster, on every GPU; with more, barriers cost more than they save

template <class Kernel>
bool prepare(Kernel* kernel) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(device_limits().shared_bytes_per_block - kOwnBytes)),
        "preparing selection");
  return true;
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int n_heads, int n_blocks, size_t shared_bytes,
            const Stream& stream, const Arguments&... arguments) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(n_blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(n_heads * n_blocks));
  config.blockDim = dim3(kSelectThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.get();
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "selecting rows");
}

// Blocks for each of so many heads, so that few share the multiprocessors out; a power of two.
int blocks_of(int n_heads, int useful) {
  const int wanted = device_limits().n_multiprocessors / n_heads;
  return static_cast<int>(
      std::bit_floor(static_cast<unsigned>(std::clamp(std::min(wanted, useful), 1, kMostBlocks))));
}

// Keys that a block keeps of so many, within `room` bytes beside SelectShared.
int kept_keys_of(int n, size_t room) {
  return static_cast<int>(
      std::min(static_cast<size_t>(n), (room - sizeof(SelectShared)) / sizeof(uint32_t)));
}

size_t select_bytes(int n_kept_keys) {
  return sizeof(SelectShared) + static_cast<size_t>(n_kept_keys) * sizeof(uint32_t);
}

}  // namespace

void select(const Heads& heads, const Quota* quotas, const Slots& slots, int32_t* n_nan,
            const Stream& stream) {
  if (heads.n_heads == 0) {
    return;
  }
  static const bool is_prepared = prepare(&select_kernel);
  static_cast<void>(is_prepared);
  const DeviceLimits& limits = device_limits();
  // A block is not worth its barriers for fewer scores than threads. Many heads have one block each, two of them on a
  // multiprocessor, so that one works while the other waits.
  const int n_blocks =
      blocks_of(heads.n_heads, (heads.most_rows + kSelectThreads - 1) / kSelectThreads);
  const int n_resident = heads.n_heads > limits.n_multiprocessors ? 2 : 1;
  const size_t room =
      std::min(limits.shared_bytes_per_block,
               limits.shared_bytes_per_multiprocessor / static_cast<size_t>(n_resident)) -
      kOwnBytes;
  const int n_kept_keys = kept_keys_of((heads.most_rows + n_blocks - 1) / n_blocks + 3, room);
  launch(&select_kernel, heads.n_heads, n_blocks, select_bytes(n_kept_keys), stream, heads.heads,
         quotas, slots, n_nan, n_blocks, n_kept_keys);
}

void select_and_compact(const RowFormat& format, const Heads& heads, const Quota* quotas,
                        const Slots& slots, int32_t* n_nan, const Stream& stream) {
  check_head_dim(format.head_dim);
  if (heads.n_heads == 0) {
    return;
  }
  static const bool is_prepared = prepare(&select_and_compact_kernel);
  static_cast<void>(is_prepared);
  const int n_blocks = blocks_of(heads.n_heads, kMostBlocks);
  constexpr int kFew = 4096;
  const bool is_alone = n_blocks == 1 || heads.most_rows <= kFew;
  const size_t room = device_limits().shared_bytes_per_block - kOwnBytes;
  const int n_kept_keys = kept_keys_of(
      is_alone ? heads.most_rows : (heads.most_rows + n_blocks - 1) / n_blocks + 3, room);
  launch(&select_and_compact_kernel, heads.n_heads, n_blocks, select_bytes(n_kept_keys), stream,
         static_cast<uint32_t>(format.key_bytes()), static_cast<uint32_t>(format.value_bytes()),
         heads.heads, quotas, slots, n_nan, n_blocks, n_kept_keys, is_alone);
}

}  // namespace winnow::kernels::cuda
