// The append kernel: floats to the cache's row types, counting what does not fit.

#include "kernels/append.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/append.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

struct ElementCounts {
  int64_t saturated = 0;
  int64_t nonfinite = 0;
};

// What a type can hold: the largest finite value, and the smallest that no longer rounds to it.
struct Range {
  float largest;
  float beyond;
};

HWY_INLINE Range range_of(cache::RowType type) {
  switch (type) {
    case cache::RowType::kF16:
      return {.largest = 65504.0F, .beyond = 65520.0F};
    case cache::RowType::kBf16:
      return {.largest = 0x1.FEp127F, .beyond = 0x1.FFp127F};
    case cache::RowType::kF32:
      break;
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {.largest = std::numeric_limits<float>::max(), .beyond = kInfinity};
}

// One vector, rounded to nearest (ties to even), to its place in a row of `type`.
HWY_INLINE void store_vector(Floats v, cache::RowType type, std::byte* to) {
  const FloatTag d;
  switch (type) {
    case cache::RowType::kF32:
      hn::StoreU(v, d, reinterpret_cast<float*>(to));
      break;
    case cache::RowType::kF16: {
      const hn::Rebind<hwy::float16_t, FloatTag> dh;
      hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(to));
      break;
    }
    case cache::RowType::kBf16: {
      const IntTag di;
      const hn::RebindToUnsigned<FloatTag> du;
      const hn::Rebind<uint16_t, FloatTag> dh;
      const auto bits = hn::BitCast(du, v);
      const auto high = hn::ShiftRight<16>(bits);
      const auto odd = hn::And(high, hn::Set(du, 1));
      const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(du, 0x7FFF), odd)));
      const auto quiet = hn::Or(high, hn::Set(du, 0x40));  // a NaN stays one
      const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
      const auto half = hn::BitCast(di, hn::IfThenElse(is_nan, quiet, rounded));
      hn::StoreU(hn::DemoteTo(dh, half), dh, reinterpret_cast<uint16_t*>(to));
      break;
    }
  }
}

// Counts what is out of range and saturates what is finite.
HWY_INLINE Floats saturate(Floats v, const Range& range, ElementCounts& counts) {
  const FloatTag d;
  const auto largest = hn::Set(d, range.largest);
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(v), largest)))) {
    return v;
  }
  const auto is_finite = hn::IsFinite(v);
  const auto is_beyond = hn::Ge(hn::Abs(v), hn::Set(d, range.beyond));
  counts.nonfinite += static_cast<int64_t>(kLanes - hn::CountTrue(d, is_finite));
  counts.saturated += static_cast<int64_t>(hn::CountTrue(d, hn::And(is_finite, is_beyond)));
  return hn::IfThenElse(is_finite, hn::Max(hn::Min(v, largest), hn::Neg(largest)), v);
}

HWY_INLINE void store_row(const float* HWY_RESTRICT from, int head_dim, cache::RowType type,
                          std::byte* HWY_RESTRICT to, ElementCounts& counts) {
  const FloatTag d;
  const Range range = range_of(type);
  const size_t n = static_cast<size_t>(head_dim);
  const size_t element = cache::element_bytes(type);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store_vector(saturate(hn::LoadU(d, from + i), range, counts), type, to + i * element);
  }
  if (i < n) {
    HWY_ALIGN float rest[kLanes] = {};
    HWY_ALIGN std::byte stored[kLanes * sizeof(float)];
    std::memcpy(rest, from + i, (n - i) * sizeof(float));
    store_vector(saturate(hn::Load(d, rest), range, counts), type, stored);
    std::memcpy(to + i * element, stored, (n - i) * element);
  }
}

// The static score of a stored row of whole chains; direction [dim], or null for its squared norm.
template <class T>
HWY_INLINE float static_score_in_place(const T* row, size_t dim, const float* direction) {
  const FloatTag d;
  constexpr size_t kParts = kChains / kLanes;
  Floats p[kParts];
  for (Floats& part : p) {
    part = hn::Zero(d);
  }
  for (size_t at = 0; at < dim; at += kChains) {
    for (size_t part = 0; part < kParts; ++part) {
      const size_t i = at + part * kLanes;
      const Floats x = load_floats(d, row + i);
      p[part] = hn::MulAdd(x, direction == nullptr ? x : hn::LoadU(d, direction + i), p[part]);
    }
  }
  HWY_ALIGN float chains[kChains];
  for (size_t part = 0; part < kParts; ++part) {
    hn::Store(p[part], d, chains + part * kLanes);
  }
  return sum_chains(chains);
}

// The same of any row, by way of padded floats.
HWY_INLINE float static_score_padded(const std::byte* row, cache::RowType type, int head_dim,
                                     const float* direction) {
  constexpr size_t kChunk = 256;  // elements; the chains run on from chunk to chunk
  HWY_ALIGN float chunk[kChunk];
  HWY_ALIGN float along[kChunk] = {};
  HWY_ALIGN float chains[kChains] = {};
  const FloatTag d;
  for (int start = 0; start < head_dim; start += static_cast<int>(kChunk)) {
    const int n = std::min(head_dim - start, static_cast<int>(kChunk));
    load_rows(type, row + static_cast<size_t>(start) * cache::element_bytes(type), 1, n, chunk);
    if (direction != nullptr) {
      std::copy_n(direction + start, n, along);
    }
    for (size_t at = 0; at < padded_dim(n); at += kChains) {
      for (size_t i = 0; i < kChains; i += kLanes) {
        const Floats x = hn::Load(d, chunk + at + i);
        const Floats y = direction == nullptr ? x : hn::Load(d, along + at + i);
        hn::Store(hn::MulAdd(x, y, hn::Load(d, chains + i)), d, chains + i);
      }
    }
  }
  return sum_chains(chains);
}

HWY_INLINE float static_score(const std::byte* row, cache::RowType type, int head_dim,
                              std::span<const float> direction) {
  const auto dim = static_cast<size_t>(head_dim);
  const float* const along = direction.empty() ? nullptr : direction.data();
  if (dim % kChains != 0) {
    return static_score_padded(row, type, head_dim, along);
  }
  switch (type) {
    case cache::RowType::kF16:
      return static_score_in_place(reinterpret_cast<const hwy::float16_t*>(row), dim, along);
    case cache::RowType::kBf16:
      return static_score_in_place(reinterpret_cast<const hwy::bfloat16_t*>(row), dim, along);
    case cache::RowType::kF32:
      break;
  }
  return static_score_in_place(reinterpret_cast<const float*>(row), dim, along);
}

cache::Cache::AppendCounts append_rows_impl(const NewRows& rows, const cache::CacheShape& shape,
                                            const cache::Cache::Target& target) {
  ElementCounts keys;
  ElementCounts values;
  const size_t dim = static_cast<size_t>(shape.head_dim);
  for (int row = 0; row < rows.n_rows; ++row) {
    const size_t at = static_cast<size_t>(row);
    std::byte* const key = target.keys + at * dim * cache::element_bytes(shape.key_type);
    std::byte* const value = target.values + at * dim * cache::element_bytes(shape.value_type);
    store_row(rows.keys + at * rows.stride, shape.head_dim, shape.key_type, key, keys);
    store_row(rows.values + at * rows.stride, shape.head_dim, shape.value_type, value, values);
    target.positions[row] = rows.first_pos + row;
    if (target.rotations != nullptr) {
      target.rotations[row] = rows.first_rotation + row;
    }
    if (target.scores != nullptr && shape.score_kind == cache::StaticScore::kReplay) {
      target.scores[row] = std::numeric_limits<float>::infinity();
    } else if (target.scores != nullptr && shape.score_kind == cache::StaticScore::kNote) {
      target.scores[row] = cache::kNotNoted;
    } else if (target.scores != nullptr &&
               shape.score_kind == cache::StaticScore::kChunkAttention) {
      target.scores[row] = std::numeric_limits<float>::quiet_NaN();
    } else if (target.scores != nullptr) {
      target.scores[row] = static_score(key, shape.key_type, shape.head_dim, rows.direction);
    }
  }
  return {.saturated = keys.saturated + values.saturated,
          .nonfinite_keys = keys.nonfinite,
          .nonfinite_values = values.nonfinite};
}

cache::Cache::AppendCounts store_values_impl(std::span<const float> values,
                                             std::span<const int> slots,
                                             const cache::CacheShape& shape, std::byte* to) {
  ElementCounts counts;
  const auto dim = static_cast<size_t>(shape.head_dim);
  for (size_t i = 0; i < slots.size(); ++i) {
    store_row(values.data() + i * dim, shape.head_dim, shape.value_type,
              to + static_cast<size_t>(slots[i]) * shape.value_bytes(), counts);
  }
  return {.saturated = counts.saturated, .nonfinite_keys = 0, .nonfinite_values = counts.nonfinite};
}

void static_scores_impl(const cache::HeadRows& rows, std::span<const float> direction,
                        std::span<float> scores) {
  const size_t key_bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.key_type);
  for (size_t slot = 0; slot < scores.size(); ++slot) {
    scores[slot] =
        static_score(rows.keys + slot * key_bytes, rows.key_type, rows.head_dim, direction);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(append_rows_impl);

cache::Cache::AppendCounts append_rows(const NewRows& rows, const cache::CacheShape& shape,
                                       const cache::Cache::Target& target) noexcept {
  return HWY_DYNAMIC_DISPATCH(append_rows_impl)(rows, shape, target);
}

HWY_EXPORT(store_values_impl);

void rewrite_values(cache::Cache& cache, int layer, int kv_head, std::span<const int> slots,
                    std::span<const float> values, std::byte* rows) {
  WINNOW_CHECK(values.size() == slots.size() * static_cast<size_t>(cache.shape().head_dim));
  std::byte* const to = rows != nullptr ? rows : cache.values(layer, kv_head);
  cache.commit_values(layer, kv_head, slots,
                      HWY_DYNAMIC_DISPATCH(store_values_impl)(values, slots, cache.shape(), to));
}

void silence_channels(cache::Cache& cache, int layer, int kv_head, std::span<const int> slots,
                      std::span<const int> channels) {
  if (channels.empty()) {
    return;
  }
  const size_t element = cache::element_bytes(cache.shape().key_type);
  for (const int slot : slots) {
    std::byte* const key =
        cache.keys(layer, kv_head) + static_cast<size_t>(slot) * cache.shape().key_bytes();
    for (const int channel : channels) {
      std::memset(key + static_cast<size_t>(channel) * element, 0, element);
    }
  }
  cache.commit_keys(layer, kv_head, slots);
}

HWY_EXPORT(static_scores_impl);

void static_scores(const cache::HeadRows& rows, std::span<const float> direction,
                   std::span<float> scores) {
  WINNOW_CHECK(std::ssize(scores) == rows.n &&
               (direction.empty() || std::ssize(direction) == rows.head_dim));
  HWY_DYNAMIC_DISPATCH(static_scores_impl)(rows, direction, scores);
}

}  // namespace winnow::kernels
#endif
