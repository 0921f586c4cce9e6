// The loops whose speed is the machine's: reading memory, and multiply-adds in registers.

#include "kernels/machine_speed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/machine_speed.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

uint64_t sum_words_impl(const uint64_t* words, size_t n) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d);
  auto b = a;
  auto c = a;
  auto e = a;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, words + i));
    b = hn::Add(b, hn::LoadU(d, words + i + lanes));
    c = hn::Add(c, hn::LoadU(d, words + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, words + i + 3 * lanes));
  }
  // Not SumOfLanes: for AVX-512 it adds signed numbers, whose overflow is undefined.
  HWY_ALIGN uint64_t of_lanes[hn::MaxLanes(d)];
  hn::Store(hn::Add(hn::Add(a, b), hn::Add(c, e)), d, of_lanes);
  uint64_t sum = 0;
  for (size_t lane = 0; lane < lanes; ++lane) {
    sum += of_lanes[lane];
  }
  for (; i < n; ++i) {
    sum += words[i];
  }
  return sum;
}

// Twelve chains: enough to hide the latency of two units of four cycles, few enough for sixteen registers.
double multiply_add_impl(int64_t n_rounds, float* result) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999F);
  const auto addend = hn::Set(d, 0.001F);
  auto x0 = hn::Iota(d, 1.0F);
  auto x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0;
  auto x6 = x0, x7 = x0, x8 = x0, x9 = x0, x10 = x0, x11 = x0;
  for (int64_t i = 0; i < n_rounds; ++i) {
    x0 = hn::MulAdd(x0, factor, addend);
    x1 = hn::MulAdd(x1, factor, addend);
    x2 = hn::MulAdd(x2, factor, addend);
    x3 = hn::MulAdd(x3, factor, addend);
    x4 = hn::MulAdd(x4, factor, addend);
    x5 = hn::MulAdd(x5, factor, addend);
    x6 = hn::MulAdd(x6, factor, addend);
    x7 = hn::MulAdd(x7, factor, addend);
    x8 = hn::MulAdd(x8, factor, addend);
    x9 = hn::MulAdd(x9, factor, addend);
    x10 = hn::MulAdd(x10, factor, addend);
    x11 = hn::MulAdd(x11, factor, addend);
  }
  const auto low = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(x4, x5));
  const auto high = hn::Add(hn::Add(hn::Add(x6, x7), hn::Add(x8, x9)), hn::Add(x10, x11));
  *result = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(n_rounds);
}

const char* instruction_set_impl() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(sum_words_impl);
HWY_EXPORT(multiply_add_impl);
HWY_EXPORT(instruction_set_impl);

uint64_t sum_words(std::span<const uint64_t> words) noexcept {
  return HWY_DYNAMIC_DISPATCH(sum_words_impl)(words.data(), words.size());
}

double multiply_add(int64_t n_rounds, float& result) noexcept {
  return HWY_DYNAMIC_DISPATCH(multiply_add_impl)(n_rounds, &result);
}

const char* instruction_set() {
  return HWY_DYNAMIC_DISPATCH(instruction_set_impl)();
}

}  // namespace winnow::kernels
#endif
