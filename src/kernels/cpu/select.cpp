// Selection: a guess from a sample, verified by counting all keys, and refined among those that the guess leaves open.
//
// It does no arithmetic on floats, so it is compiled for sets below AVX2 as well, and tested on all of them.

#include "kernels/select.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

#ifndef HWY_COMPILE_ONLY_STATIC
#define HWY_COMPILE_ALL_ATTAINABLE
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/select.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Keys are signed integers in the order of the scores. Arrays of keys are padded to whole vectors with the lowest.
using KeyTag = hn::CappedTag<int32_t, kSelectSlack>;
using Keys = hn::Vec<KeyTag>;
using KeyMask = hn::Mask<KeyTag>;
inline constexpr size_t kKeyLanes = HWY_MIN(kSelectSlack, HWY_LANES(int32_t));
inline constexpr int32_t kLowestKey = std::numeric_limits<int32_t>::min();   // NaN's
inline constexpr int32_t kHighestKey = std::numeric_limits<int32_t>::max();  // nothing's

// From the bits of floats, by integer arithmetic alone: subnormal numbers count, whatever the floating-point mode.
HWY_INLINE KeyMask is_nan(Keys bits) {
  const KeyTag d;
  return hn::Gt(hn::And(bits, hn::Set(d, 0x7fffffff)), hn::Set(d, 0x7f800000));
}

HWY_INLINE Keys ordered(Keys bits) {
  const KeyTag d;
  const Keys key = hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(d, 0x7fffffff)));
  const Keys one_zero = hn::IfThenElse(hn::Eq(key, hn::Set(d, -1)), hn::Zero(d), key);  // of -0
  return hn::IfThenElse(is_nan(bits), hn::Set(d, kLowestKey), one_zero);
}

// Adds 1 where the mask is set.
HWY_INLINE Keys counted(Keys counts, KeyMask mask) {
  return hn::Sub(counts, hn::VecFromMask(KeyTag(), mask));
}

HWY_INLINE size_t total(Keys counts) {
  return static_cast<size_t>(hn::GetLane(hn::SumOfLanes(KeyTag(), counts)));
}

#if HWY_TARGET == HWY_AVX2
// For each mask the lanes it selects, a hexadecimal digit each. Highway's own table is copied to the stack for each vector
// by some compilers.
struct LanesOfMasks {
  uint32_t of[256] = {};
};
constexpr LanesOfMasks lanes_of_masks() {
  LanesOfMasks lanes;
  for (uint32_t mask = 0; mask < 256; ++mask) {
    int n = 0;
    for (uint32_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) {
        lanes.of[mask] |= lane << (4 * n++);
      }
    }
  }
  return lanes;
}
inline constexpr LanesOfMasks kLanesOfMasks = lanes_of_masks();
#endif

// The elements that the mask selects, and anything behind them.
HWY_INLINE Keys compressed(Keys elements, KeyMask mask) {
#if HWY_TARGET == HWY_AVX2
  const KeyTag d;
  uint8_t bits = 0;
  hn::StoreMaskBits(d, mask, &bits);
  const Keys digits = hn::Set(d, static_cast<int32_t>(kLanesOfMasks.of[bits]));
  const Keys lanes = hn::Shr(digits, hn::ShiftLeft<2>(hn::Iota(d, 0)));
  return hn::TableLookupLanes(elements, hn::IndicesFromVec(d, hn::And(lanes, hn::Set(d, 7))));
#else
  return hn::Compress(elements, mask);
#endif
}

// Writes the elements that the mask selects, and up to a vector of anything behind them; returns their end.
HWY_INLINE int32_t* append(Keys elements, KeyMask mask, int32_t* to) {
  hn::StoreU(compressed(elements, mask), KeyTag(), to);
  return to + hn::CountTrue(KeyTag(), mask);
}

HWY_INLINE void pad(int32_t* end_of_keys) {
  hn::StoreU(hn::Set(KeyTag(), kLowestKey), KeyTag(), end_of_keys);
}

// Returns how many scores are NaN. Its loop and all others over n keys go on to the end of the last vector.
HWY_INLINE size_t make_keys(const float* HWY_RESTRICT scores, size_t n,
                            int32_t* HWY_RESTRICT keys) {
  const KeyTag d;
  Keys n_nan = hn::Zero(d);
  size_t i = 0;
  const hn::RebindToFloat<KeyTag> df;
  for (; i + kKeyLanes <= n; i += kKeyLanes) {
    const Keys each = hn::BitCast(d, hn::LoadU(df, scores + i));
    n_nan = counted(n_nan, is_nan(each));
    hn::StoreU(ordered(each), d, keys + i);
  }
  if (i < n) {
    HWY_ALIGN int32_t rest[kKeyLanes] = {};
    std::memcpy(rest, scores + i, (n - i) * sizeof(float));
    const Keys each = hn::Load(d, rest);
    n_nan = counted(n_nan, is_nan(each));
    hn::StoreU(ordered(each), d, keys + i);
    pad(keys + n);
  }
  return total(n_nan);
}

// key > kLowestKey
HWY_INLINE size_t count_at_least(const int32_t* keys, size_t n, int32_t key) {
  const KeyTag d;
  const Keys below = hn::Set(d, key - 1);
  Keys counts = hn::Zero(d);
  for (size_t i = 0; i < n; i += kKeyLanes) {
    counts = counted(counts, hn::Gt(hn::LoadU(d, keys + i), below));
  }
  return total(counts);
}

// The lowest of the keys that are at least `key`, of which there is one.
HWY_INLINE int32_t lowest_at_least(const int32_t* keys, size_t n, int32_t key) {
  const KeyTag d;
  const Keys at_least = hn::Set(d, key);
  Keys lowest = hn::Set(d, kHighestKey);
  for (size_t i = 0; i < n; i += kKeyLanes) {
    const Keys each = hn::LoadU(d, keys + i);
    lowest = hn::Min(lowest, hn::IfThenElse(hn::Lt(each, at_least), lowest, each));
  }
  return hn::GetLane(hn::MinOfLanes(d, lowest));
}

HWY_INLINE int32_t highest(const int32_t* keys, size_t n) {
  const KeyTag d;
  Keys each = hn::Set(d, kLowestKey);
  for (size_t i = 0; i < n; i += kKeyLanes) {
    each = hn::Max(each, hn::LoadU(d, keys + i));
  }
  return hn::GetLane(hn::MaxOfLanes(d, each));
}

// The k-th highest key, by halving the interval that it lies in. Quick for few keys. 1 <= k <= n.
HWY_INLINE int32_t bisect(const int32_t* keys, size_t n, size_t k) {
  if (count_at_least(keys, n, kLowestKey + 1) < k) {
    return kLowestKey;
  }
  // At least k keys are >= low, and fewer are > high.
  int64_t low = lowest_at_least(keys, n, kLowestKey + 1);
  int64_t high = highest(keys, n);
  while (low < high) {
    const int64_t middle = high - (high - low) / 2;
    const size_t n_at_least = count_at_least(keys, n, static_cast<int32_t>(middle));
    if (n_at_least == k) {
      return lowest_at_least(keys, n, static_cast<int32_t>(middle));
    }
    if (n_at_least > k) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<int32_t>(low);
}

// The k-th highest key, digit by digit: three passes at most, whatever the keys. rest [n + kKeyLanes].
HWY_INLINE int32_t count_digits(const int32_t* keys, size_t n, size_t k, int32_t* rest) {
  const KeyTag d;
  constexpr int kDigitBits[] = {11, 11, 10};
  int shift = 32;
  uint32_t found = 0;  // the leading digits, of the key with its sign bit turned
  for (const int bits : kDigitBits) {
    shift -= bits;
    uint32_t counts[1 << 11] = {};
    for (size_t i = 0; i < n; ++i) {
      ++counts[((static_cast<uint32_t>(keys[i]) ^ 0x80000000U) - found) >> shift];
    }
    uint32_t digit = (1U << bits) - 1;
    for (; k > counts[digit]; --digit) {
      k -= counts[digit];
    }
    found += digit << shift;
    if (shift > 0) {
      const Keys digits = hn::Set(d, static_cast<int32_t>(~0U << shift));
      const Keys wanted = hn::Set(d, static_cast<int32_t>(found ^ 0x80000000U));
      const int32_t* const from = keys;
      int32_t* end = rest;
      for (size_t i = 0; i < n; i += kKeyLanes) {
        const Keys each = hn::LoadU(d, from + i);
        end = append(each, hn::Eq(hn::And(each, digits), wanted), end);
      }
      n = HWY_MIN(static_cast<size_t>(end - rest), size_t{counts[digit]});  // without padding
      pad(rest + n);
      keys = rest;
    }
  }
  return static_cast<int32_t>(found ^ 0x80000000U);
}

struct Interval {
  int32_t low, high;  // keys; both ends belong to it
};

// Where the k-th highest key probably is: three standard deviations to both sides of its place in a sample.
HWY_INLINE Interval guess(const int32_t* keys, size_t n, size_t k) {
  constexpr size_t kMostSampled = 1024;
  int32_t sample[kMostSampled];
  const auto n_sample = n_sampled(n);
  for (size_t i = 0; i < n_sample; ++i) {
    sample[i] = keys[sampled_slot(i, n_sample, n)];
  }
  const double share = static_cast<double>(k) / static_cast<double>(n);
  const double place = share * static_cast<double>(n_sample);
  const double margin = 3 * std::sqrt(place * (1 - share)) + 1;
  const double first = place - margin;
  const double last = place + margin;
  return {.low = last > static_cast<double>(n_sample)
                     ? kLowestKey
                     : bisect(sample, n_sample, static_cast<size_t>(last)),
          .high = first < 1 ? kHighestKey : bisect(sample, n_sample, static_cast<size_t>(first))};
}

// The numbers of keys above an interval, at its upper end, between the ends, and at the lower end.
struct Split {
  size_t above, at_high, between, at_low;
};

// Those between go to `between` [n + kKeyLanes], which may be the keys themselves.
HWY_INLINE Split split(const int32_t* keys, size_t n, Interval interval, int32_t* between) {
  const KeyTag d;
  const Keys low = hn::Set(d, interval.low);
  const Keys high = hn::Set(d, interval.high);
  Keys above = hn::Zero(d);
  Keys at_high = hn::Zero(d);
  Keys at_low = hn::Zero(d);
  int32_t* end = between;
  for (size_t i = 0; i < n; i += kKeyLanes) {
    const Keys each = hn::LoadU(d, keys + i);
    above = counted(above, hn::Gt(each, high));
    at_high = counted(at_high, hn::Eq(each, high));
    at_low = counted(at_low, hn::Eq(each, low));
    end = append(each, hn::And(hn::Gt(each, low), hn::Gt(high, each)), end);
  }
  pad(end);
  const size_t n_at_low = interval.low == interval.high ? 0 : total(at_low);
  return {total(above), total(at_high), static_cast<size_t>(end - between), n_at_low};
}

inline constexpr size_t kBisected = 512;  // keys that are not worth a guess

// The k-th highest key. 1 <= k <= n; rest [n + kKeyLanes].
HWY_INLINE int32_t kth_highest(const int32_t* all_keys, size_t n_all, size_t k_of_all,
                               int32_t* rest) {
  const int32_t* keys = all_keys;
  size_t n = n_all;
  size_t k = k_of_all;
  while (n > kBisected) {
    const Interval interval = guess(keys, n, k);
    const Split found = split(keys, n, interval, rest);
    const size_t n_inside = found.at_high + found.between + found.at_low;
    if (k <= found.above || k > found.above + n_inside || found.between > n / 2) {
      return count_digits(all_keys, n_all, k_of_all, rest);
    }
    k -= found.above;
    if (k <= found.at_high) {
      return interval.high;
    }
    k -= found.at_high;
    if (k > found.between) {
      return interval.low;
    }
    keys = rest;
    n = found.between;
  }
  return bisect(keys, n, k);
}

// The slot behind the n_ties-th of the keys equal to `key`.
HWY_INLINE size_t end_of_ties(const int32_t* keys, int32_t key, size_t n_ties) {
  const KeyTag d;
  const Keys wanted = hn::Set(d, key);
  size_t i = 0;
  while (true) {
    const size_t n_here = hn::CountTrue(d, hn::Eq(hn::LoadU(d, keys + i), wanted));
    if (n_here >= n_ties) {
      break;
    }
    n_ties -= n_here;
    i += kKeyLanes;
  }
  for (; n_ties > 0; ++i) {
    n_ties -= keys[i] == key ? 1 : 0;
  }
  return i;
}

// The slots of keys at least `key` before `end`, and above it from there.
HWY_INLINE void write_slots(const int32_t* HWY_RESTRICT keys, size_t n, int32_t key, size_t end,
                            int first_slot, int* HWY_RESTRICT kept) {
  const KeyTag d;
  const Keys wanted = hn::Set(d, key);
  const Keys lanes = hn::Set(d, static_cast<int32_t>(kKeyLanes));
  Keys slots = hn::Iota(d, first_slot);
  size_t i = 0;
  for (; i + kKeyLanes <= end; i += kKeyLanes) {
    kept = append(slots, hn::Not(hn::Lt(hn::LoadU(d, keys + i), wanted)), kept);
    slots = hn::Add(slots, lanes);
  }
  if (i < end) {
    const Keys each = hn::LoadU(d, keys + i);
    const KeyMask is_tie_kept = hn::And(hn::Eq(each, wanted), hn::FirstN(d, end - i));
    kept = append(slots, hn::Or(hn::Gt(each, wanted), is_tie_kept), kept);
    slots = hn::Add(slots, lanes);
    i += kKeyLanes;
  }
  for (; i < n; i += kKeyLanes) {
    kept = append(slots, hn::Gt(hn::LoadU(d, keys + i), wanted), kept);
    slots = hn::Add(slots, lanes);
  }
}

size_t select_highest_impl(const float* scores, size_t n, size_t n_keep, int first_slot, int* kept,
                           Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  int32_t* const keys = scratch.take<int32_t>(n + kKeyLanes).data();
  int32_t* const rest = scratch.take<int32_t>(n + kKeyLanes).data();
  const size_t n_nan = make_keys(scores, n, keys);
  const int32_t lowest_kept = kth_highest(keys, n, n_keep, rest);
  const size_t n_above = count_at_least(keys, n, lowest_kept + 1);
  const size_t end = end_of_ties(keys, lowest_kept, n_keep - n_above);
  write_slots(keys, n, lowest_kept, end, first_slot, kept);
  return n_nan;
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(select_highest_impl);

int select_highest(std::span<const float> scores, int n_keep, int first_slot, std::span<int> kept,
                   Scratch& scratch) {
  WINNOW_CHECK(n_keep >= 1 && n_keep <= std::ssize(scores) &&
               kept.size() >= static_cast<size_t>(n_keep) + kSelectSlack);
  return static_cast<int>(HWY_DYNAMIC_DISPATCH(select_highest_impl)(
      scores.data(), scores.size(), static_cast<size_t>(n_keep), first_slot, kept.data(), scratch));
}

}  // namespace winnow::kernels
#endif
