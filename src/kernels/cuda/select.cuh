// The rows of one head that stay, found by a cluster of thread blocks without sorting: the k-th highest key digit by digit, and
// one ordered pass that writes the slots above it and the first of those equal to it.
//
// Each block owns one range of the head's scores, each warp one range of the block's, so that counts added up in order give
// every slot its place. Nothing depends on how many blocks share a head.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

#include "kernels/cuda/device_rows.h"

namespace winnow::kernels::cuda {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / 32;
inline constexpr int kMostBins = 1 << 11;
inline constexpr int kKeyDigits = 3;

__device__ __forceinline__ constexpr int digit_bits(int digit) {
  return digit == kKeyDigits - 1 ? 10 : 11;
}

// What the blocks of a cluster know of each other. Behind it in shared memory: the block's keys, as far as they fit.
struct alignas(16) SelectShared {
  int counts[kMostBins];  // of this block's keys, by digit
  int merged[kMostBins];  // of all blocks' keys, for this block's share of the digits
  int n_merged;           // their sum
  int n_above;            // keys above the k-th, in this block
  int n_equal;
  int above_blocks;  // in the blocks before this one
  int equal_blocks;
  int warp_counts[2][kSelectWarps];
  int owner;        // the block with the share of digits that holds the k-th
  int above_owner;  // keys in shares above
  int found_digit;
  int found_above;  // keys of higher digits
  int found_count;  // keys of that digit
};

// Unsigned integers in the order of the scores: -0 = +0, infinities in their place, NaN 0.
__device__ __forceinline__ uint32_t ordered(float score) {
  const uint32_t bits = __float_as_uint(score);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return 0;
  }
  if (bits == 0x80000000U) {
    return 0x80000000U;  // as +0
  }
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// The block's keys: in shared memory up to n_kept_keys, made anew from the scores behind that.
struct Keys {
  const float* scores;  // the block's first
  uint32_t* kept;
  int n;
  int n_kept_keys;

  __device__ uint32_t operator[](int i) const {
    return i < n_kept_keys ? kept[i] : ordered(scores[i]);
  }
  // Keys i … i + 3, i a multiple of 4; 0 behind the last.
  __device__ uint4 four(int i) const {
    if (i + 3 < n_kept_keys) {
      return *reinterpret_cast<const uint4*>(kept + i);
    }
    const auto at = [this](int j) { return j < n ? (*this)[j] : 0; };
    return make_uint4(at(i), at(i + 1), at(i + 2), at(i + 3));
  }
};

// Sums over a warp, and over the lanes before each.
__device__ __forceinline__ int warp_sum(int x) {
  return __reduce_add_sync(0xffffffffU, x);
}
__device__ __forceinline__ int sum_before(int x, int lane) {
  int sum = x;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, sum, offset);
    sum += lane >= offset ? other : 0;
  }
  return sum - x;
}

// Finds, from the highest of the bins down, the one that holds the k-th: bins [n_bins], at most 2 * kSelectThreads, one pair a
// thread. Writes the bin, counted from the lowest, what lies above it and what it holds. k is at most the sum of all.
__device__ inline void find_bin(const int* bins, int n_bins, int k, int first_digit,
                                SelectShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int high = n_bins - 1 - 2 * thread;
  const int upper = high >= 0 ? bins[high] : 0;
  const int lower = high >= 1 ? bins[high - 1] : 0;
  const int before = sum_before(upper + lower, lane);
  if (lane == 31) {
    shared.warp_counts[0][warp] = before + upper + lower;
  }
  __syncthreads();
  const int warps_before = warp_sum(lane < warp ? shared.warp_counts[0][lane] : 0);
  const int above = warps_before + before;
  if (above < k && k <= above + upper) {
    shared.found_digit = first_digit + high;
    shared.found_above = above;
    shared.found_count = upper;
  } else if (above + upper < k && k <= above + upper + lower) {
    shared.found_digit = first_digit + high - 1;
    shared.found_above = above + upper;
    shared.found_count = lower;
  }
  __syncthreads();
}

// The blocks that share a head: a whole cluster, or one block by itself.
struct Sharers {
  int n_blocks;
  int rank;

  __device__ void sync() const {
    if (n_blocks > 1) {
      cooperative_groups::this_cluster().sync();
    } else {
      __syncthreads();
    }
  }
  // A variable in shared memory as block `block` has it.
  template <class T>
  __device__ T* of_block(T& variable, int block) const {
    return n_blocks > 1 ? cooperative_groups::this_cluster().map_shared_rank(
                              &variable, static_cast<unsigned>(block))
                        : &variable;
  }
};

// Counts the block's keys by the `bits` digits above `shift`, of those that begin with `found`. The first time all do, and they
// are made from the scores.
template <bool kIsFirst>
__device__ void count_digits(const Keys& keys, int bits, int shift, uint32_t found,
                             SelectShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int n_bins = 1 << bits;
  for (int i = thread; i < n_bins; i += kSelectThreads) {
    shared.counts[i] = 0;
  }
  __syncthreads();
  const auto count = [&](uint32_t key) {
    atomicAdd(&shared.counts[(key >> shift) & static_cast<uint32_t>(n_bins - 1)], 1);
  };
  if constexpr (kIsFirst) {
    const auto take = [&](int i, uint32_t key) {
      if (i < keys.n_kept_keys) {
        keys.kept[i] = key;
      }
      count(key);
    };
    // Four scores a load, as far as they lie so.
    const bool is_aligned = (reinterpret_cast<uintptr_t>(keys.scores) & 15) == 0;
    const int n_fours = is_aligned ? keys.n / 4 : 0;
    constexpr int kUnroll = 2;
    for (int base = 0; base < n_fours; base += kSelectThreads * kUnroll) {
      float4 each[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int i = base + u * kSelectThreads + thread;
        if (i < n_fours) {
          each[u] = reinterpret_cast<const float4*>(keys.scores)[i];
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int i = base + u * kSelectThreads + thread;
        if (i < n_fours) {
          const uint4 four = make_uint4(ordered(each[u].x), ordered(each[u].y), ordered(each[u].z),
                                        ordered(each[u].w));
          if (4 * i + 3 < keys.n_kept_keys) {
            *reinterpret_cast<uint4*>(keys.kept + 4 * i) = four;
            count(four.x), count(four.y), count(four.z), count(four.w);
          } else {
            take(4 * i, four.x), take(4 * i + 1, four.y);
            take(4 * i + 2, four.z), take(4 * i + 3, four.w);
          }
        }
      }
    }
    constexpr int kUnrollOnes = 4;
    for (int base = 4 * n_fours; base < keys.n; base += kSelectThreads * kUnrollOnes) {
      float each[kUnrollOnes];
#pragma unroll
      for (int u = 0; u < kUnrollOnes; ++u) {
        const int i = base + u * kSelectThreads + thread;
        each[u] = i < keys.n ? keys.scores[i] : 0.0F;
      }
#pragma unroll
      for (int u = 0; u < kUnrollOnes; ++u) {
        const int i = base + u * kSelectThreads + thread;
        if (i < keys.n) {
          take(i, ordered(each[u]));
        }
      }
    }
  } else {
    const uint32_t wanted = found >> (shift + bits);
    for (int i = 4 * thread; i < keys.n; i += 4 * kSelectThreads) {
      const uint4 four = keys.four(i);
      const uint32_t each[] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (each[j] >> (shift + bits) == wanted && i + j < keys.n) {
          count(each[j]);
        }
      }
    }
  }
}

// Digits counted over all blocks of a cluster: those of the block that holds the k-th key.
struct MergedDigits {
  const int* bins;
  int n_bins;
  int first_digit;
  int k;  // among them
};

// Each block adds up its share of the digits over all blocks, a warp 32 digits of one block at a time; then all find the share
// that holds the k-th.
__device__ inline MergedDigits merge_digits(int n_bins, int k, const Sharers& sharers,
                                            SelectShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int per_block = n_bins / sharers.n_blocks;
  for (int i = thread; i < per_block; i += kSelectThreads) {
    shared.merged[i] = 0;
  }
  if (thread == 0) {
    shared.n_merged = 0;
  }
  __syncthreads();
  int sum = 0;
  for (int i = warp; i < n_bins / 32; i += kSelectWarps) {
    const int bin = i / sharers.n_blocks * 32 + lane;
    const int n_here =
        *sharers.of_block(shared.counts[sharers.rank * per_block + bin], i % sharers.n_blocks);
    if (n_here != 0) {
      atomicAdd(&shared.merged[bin], n_here);
    }
    sum += n_here;
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    atomicAdd(&shared.n_merged, sum);
  }
  sharers.sync();
  if (warp == 0) {  // one is enough to ask the others
    const int block = sharers.n_blocks - 1 - lane;
    const int share = block >= 0 ? *sharers.of_block(shared.n_merged, block) : 0;
    const int above = sum_before(share, lane);
    if (above < k && k <= above + share) {
      shared.owner = block;
      shared.above_owner = above;
    }
  }
  __syncthreads();
  return {sharers.of_block(shared.merged[0], shared.owner), per_block, shared.owner * per_block,
          k - shared.above_owner};
}

// Kept are the keys above `key`, and the first n_ties of those equal to it.
struct Limit {
  uint32_t key;
  int n_ties;
};

// For the k highest keys, 1 <= k < the number of all. Writes how many scores are NaN, if asked.
__device__ inline Limit find_limit(const Keys& keys, int k, int32_t* n_nan, const Sharers& sharers,
                                   SelectShared& shared) {
  uint32_t found = 0;  // the leading digits of the k-th
  int shift = 32;
#pragma unroll
  for (int digit = 0; digit < kKeyDigits; ++digit) {
    const int bits = digit_bits(digit);
    shift -= bits;
    if (digit == 0) {
      count_digits<true>(keys, bits, shift, found, shared);
    } else {
      count_digits<false>(keys, bits, shift, found, shared);
    }
    sharers.sync();
    MergedDigits digits{shared.counts, 1 << bits, 0, k};
    if (sharers.n_blocks > 1) {
      digits = merge_digits(1 << bits, k, sharers, shared);
    }
    if (digit == 0 && n_nan != nullptr && sharers.rank == 0 && threadIdx.x == 0) {
      // Of the lowest digit are NaN alone.
      *n_nan = sharers.n_blocks > 1 ? shared.merged[0] : shared.counts[0];
    }
    find_bin(digits.bins, digits.n_bins, digits.k, digits.first_digit, shared);
    found |= static_cast<uint32_t>(shared.found_digit) << shift;
    k = digits.k - shared.found_above;
    if (k == shared.found_count) {
      return {found - 1, 0};  // all with these digits
    }
  }
  return {found, k};
}

// The keys of one warp: a range of its block's.
struct WarpKeys {
  static constexpr int kStep = 128;  // looked at together, four a lane

  int first, end;

  __device__ explicit WarpKeys(int n) {
    const int per_warp = (n + kSelectWarps * kStep - 1) / (kSelectWarps * kStep) * kStep;
    first = min(static_cast<int>(threadIdx.x) / 32 * per_warp, n);
    end = min(first + per_warp, n);
  }
};

// Keys above the limit in the lower half, equal to it in the upper.
__device__ __forceinline__ int count_four(const uint4& four, int i, int end, uint32_t limit) {
  const uint32_t each[] = {four.x, four.y, four.z, four.w};
  int both = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    both += each[j] > limit ? 1 : each[j] == limit && i + j < end ? 1 << 16 : 0;
  }
  return both;
}

// How many keys above and equal to the limit lie before this warp's, in this block and the blocks before.
__device__ inline int2 count_before(const Keys& keys, const WarpKeys& range, uint32_t limit,
                                    const Sharers& sharers, SelectShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  int n_above = 0;
  int n_equal = 0;
  for (int i = range.first + 4 * lane; i < range.end; i += WarpKeys::kStep) {
    const int both = count_four(keys.four(i), i, range.end, limit);
    n_above += both & 0xffff;
    n_equal += both >> 16;
  }
  n_above = warp_sum(n_above);
  n_equal = warp_sum(n_equal);
  if (lane == 0) {
    shared.warp_counts[0][warp] = n_above;
    shared.warp_counts[1][warp] = n_equal;
  }
  __syncthreads();
  int above_before = sum_before(shared.warp_counts[0][lane], lane);
  int equal_before = sum_before(shared.warp_counts[1][lane], lane);
  if (thread == 31) {
    shared.n_above = above_before + shared.warp_counts[0][31];
    shared.n_equal = equal_before + shared.warp_counts[1][31];
  }
  above_before = __shfl_sync(0xffffffffU, above_before, warp);
  equal_before = __shfl_sync(0xffffffffU, equal_before, warp);
  if (sharers.n_blocks > 1) {
    sharers.sync();
    if (warp == 0) {
      const bool is_before = lane < sharers.rank;
      const int above = warp_sum(is_before ? *sharers.of_block(shared.n_above, lane) : 0);
      const int equal = warp_sum(is_before ? *sharers.of_block(shared.n_equal, lane) : 0);
      if (lane == 0) {
        shared.above_blocks = above;
        shared.equal_blocks = equal;
      }
    }
    __syncthreads();
    above_before += shared.above_blocks;
    equal_before += shared.equal_blocks;
  }
  return make_int2(above_before, equal_before);
}

// Writes the slots of this warp's keys that are kept to their places in `out`, given how many lie before; key 0 is first_slot's.
__device__ inline void write_slots(const Keys& keys, const WarpKeys& range, const Limit& limit,
                                   int2 before, int first_slot, int32_t* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int base = range.first; base < range.end; base += WarpKeys::kStep) {
    const int i = base + 4 * lane;
    const uint4 four = i < range.end ? keys.four(i) : make_uint4(0, 0, 0, 0);
    const int both = count_four(four, i, range.end, limit.key);
    const int of_lanes_before = sum_before(both, lane);
    const int total = __shfl_sync(0xffffffffU, of_lanes_before + both, 31);
    int above = before.x + (of_lanes_before & 0xffff);
    int equal = before.y + (of_lanes_before >> 16);
    const uint32_t each[] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (each[j] > limit.key) {
        out[above + min(equal, limit.n_ties)] = first_slot + i + j;
        ++above;
      } else if (each[j] == limit.key && i + j < range.end) {
        if (equal < limit.n_ties) {
          out[above + equal] = first_slot + i + j;
        }
        ++equal;
      }
    }
    before.x += total & 0xffff;
    before.y += total >> 16;
  }
}

// Writes the slots that `quota` keeps of head.n to slots, and how many scores are NaN to n_nan if it is not null. All threads
// of the sharers call it; what was written is seen by all of them afterwards. Returns how many slots.
__device__ inline int select_slots(const HeadArrays& head, const Quota& quota, int32_t* slots,
                                   int32_t* n_nan, const Sharers& sharers, SelectShared& shared,
                                   uint32_t* kept_keys, int most_kept_keys) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto write_range = [&](int32_t* to, int first, int n) {
    for (int i = sharers.rank * kSelectThreads + thread; i < n;
         i += sharers.n_blocks * kSelectThreads) {
      to[i] = first + i;
    }
  };
  const int n_choose = quota.n_keep - quota.n_first - quota.n_last;
  const bool keeps_all = quota.n_keep >= head.n;
  if (keeps_all) {
    write_range(slots, 0, head.n);
  } else {
    write_range(slots, 0, quota.n_first);
    write_range(slots + quota.n_keep - quota.n_last, head.n - quota.n_last, quota.n_last);
  }
  if (keeps_all || n_choose == 0) {
    if (n_nan != nullptr && sharers.rank == 0 && thread == 0) {
      *n_nan = 0;
    }
    sharers.sync();
    return keeps_all ? head.n : quota.n_keep;
  }
  const int n_scores = head.n - quota.n_first - quota.n_last;
  // A multiple of four, so that the scores of all blocks are aligned alike.
  const int per_block = (n_scores + 4 * sharers.n_blocks - 1) / (4 * sharers.n_blocks) * 4;
  const int first = min(sharers.rank * per_block, n_scores);
  const int n = min(per_block, n_scores - first);
  const Keys keys{head.scores + quota.n_first + first, kept_keys, n, min(most_kept_keys, n)};
  const Limit limit = find_limit(keys, n_choose, n_nan, sharers, shared);
  const WarpKeys range(n);
  const int2 before = count_before(keys, range, limit.key, sharers, shared);
  write_slots(keys, range, limit, before, quota.n_first + first, slots + quota.n_first);
  sharers.sync();  // also: no block leaves while another reads its counts
  return quota.n_keep;
}

}  // namespace winnow::kernels::cuda
