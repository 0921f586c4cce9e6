// Turning keys as they are read, by as many positions as each lags behind (kernels/key_turns.h).

#if defined(WINNOW_KERNELS_CPU_TURN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_TURN_INL_H_
#undef WINNOW_KERNELS_CPU_TURN_INL_H_
#else
#define WINNOW_KERNELS_CPU_TURN_INL_H_
#endif

#include <cstdlib>

#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/key_turns.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Calls action(first pair, number of pairs) for all pairs, a vector at a time; the last may be short.
template <class Action>
HWY_INLINE void for_pairs(size_t n_pairs, const Action& action) {
  for (size_t i = 0; i < n_pairs; i += kLanes) {
    action(i, HWY_MIN(kLanes, n_pairs - i));
  }
}

HWY_INLINE Floats load_some(const float* from, size_t n) {
  const FloatTag d;
  if (HWY_LIKELY(n == kLanes)) {
    return hn::LoadU(d, from);
  }
  HWY_ALIGN float some[kLanes] = {};
  std::memcpy(some, from, n * sizeof(float));
  return hn::Load(d, some);
}

HWY_INLINE void store_some(Floats x, size_t n, float* to) {
  const FloatTag d;
  if (HWY_LIKELY(n == kLanes)) {
    hn::StoreU(x, d, to);
    return;
  }
  HWY_ALIGN float some[kLanes];
  hn::Store(x, d, some);
  std::memcpy(to, some, n * sizeof(float));
}

// turns [2 * n_pairs] = the turns by |lag| positions: those in the table, or a turn by one after the other. Returns them.
HWY_INLINE const float* compose_turns(const TurnTable& table, int lag, float* HWY_RESTRICT turns) {
  const int n = std::abs(lag);
  const float* const fine = table.fine(n % TurnTable::kFine);
  if (n < TurnTable::kFine) {
    return fine;
  }
  const float* const coarse = table.coarse(n);
  const size_t n_pairs = table.rotation().pairs.size();
  for_pairs(n_pairs, [&](size_t i, size_t n_some) HWY_ATTR {
    const Floats cos_a = load_some(fine + i, n_some);
    const Floats sin_a = load_some(fine + n_pairs + i, n_some);
    const Floats cos_b = load_some(coarse + i, n_some);
    const Floats sin_b = load_some(coarse + n_pairs + i, n_some);
    store_some(hn::NegMulAdd(sin_a, sin_b, hn::Mul(cos_a, cos_b)), n_some, turns + i);
    store_some(hn::MulAdd(sin_a, cos_b, hn::Mul(cos_a, sin_b)), n_some, turns + n_pairs + i);
  });
  return turns;
}

// x [2 * n_pairs …] is turned back by the turns, or forwards.
HWY_INLINE void turn_row(Rotation::Pairs layout, size_t n_pairs, const float* turns,
                         bool is_forwards, float* HWY_RESTRICT x) {
  const FloatTag d;
  for_pairs(n_pairs, [&](size_t i, size_t n) HWY_ATTR {
    const Floats cosine = load_some(turns + i, n);
    Floats sine = load_some(turns + n_pairs + i, n);
    if (is_forwards) {
      sine = hn::Neg(sine);
    }
    Floats a;
    Floats b;
    HWY_ALIGN float both[2 * kLanes] = {};
    const bool is_whole = n == kLanes;
    float* const neighbours = is_whole ? x + 2 * i : both;
    if (layout == Rotation::Pairs::kHalves) {
      a = load_some(x + i, n);
      b = load_some(x + n_pairs + i, n);
    } else {
      if (!is_whole) {
        std::memcpy(both, x + 2 * i, 2 * n * sizeof(float));
      }
      hn::LoadInterleaved2(d, neighbours, a, b);
    }
    const Floats turned_a = hn::MulAdd(b, sine, hn::Mul(a, cosine));
    const Floats turned_b = hn::NegMulAdd(a, sine, hn::Mul(b, cosine));
    if (layout == Rotation::Pairs::kHalves) {
      store_some(turned_a, n, x + i);
      store_some(turned_b, n, x + n_pairs + i);
    } else {
      hn::StoreInterleaved2(turned_a, turned_b, d, neighbours);
      if (!is_whole) {
        std::memcpy(x + 2 * i, both, 2 * n * sizeof(float));
      }
    }
  });
}

// Turns the keys of slots first … first + n - 1, at `keys`, `stride` floats apart. turns [n_rot] is scratch.
HWY_INLINE void turn_keys(const KeyTurns& key_turns, int first, int n, size_t stride, float* keys,
                          float* turns) {
  const TurnTable& table = *key_turns.table;
  const Rotation& rotation = table.rotation();
  int lag = 0;
  const float* of_lag = nullptr;
  for (int row = 0; row < n; ++row) {
    const int own = key_turns.lags[first + row];
    if (own == 0) {
      continue;
    }
    if (of_lag == nullptr || own != lag) {
      lag = own;
      of_lag = compose_turns(table, lag, turns);
    }
    turn_row(rotation.layout, rotation.pairs.size(), of_lag, lag < 0,
             keys + static_cast<size_t>(row) * stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif  // toggle
