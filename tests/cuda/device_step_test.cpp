// A cache whose rows lie on the GPU: what is appended, attended to and kept, against plain loops on the host.

#include "kernels/device_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "cuda/gpu.h"
#include "kernels/cuda/device.h"
#include "oracle/attention_oracle.h"

namespace winnow {
namespace {

using kernels::cuda::Array;
using Step = test::OnGpu;

struct Case {
  int head_dim, n_heads, n_kv_heads;
  cache::RowType type;
  int swa_window = 0;
};

constexpr Case kCases[] = {
    {64, 9, 3, cache::RowType::kF16},       {64, 14, 2, cache::RowType::kBf16, 100},
    {80, 6, 2, cache::RowType::kBf16},      {96, 4, 1, cache::RowType::kF16, 40},
    {128, 12, 2, cache::RowType::kF16},     {128, 8, 8, cache::RowType::kBf16},
    {256, 4, 1, cache::RowType::kF16, 300}, {256, 6, 3, cache::RowType::kBf16}};

std::string name_of(const Case& c) {
  return std::to_string(c.head_dim) + " " + std::to_string(c.n_heads) + "/" +
         std::to_string(c.n_kv_heads) + " " + cache::row_type_name(c.type);
}

constexpr int kMostTokens = 1500;  // of a call
constexpr int kMostRows = 6000;

// What a token brings: a function of its position alone, so that any cut into calls is of the same tokens.
std::vector<float> activations(int pos, size_t n, uint32_t seed, float size) {
  std::mt19937 random(seed * 1'000'003 + static_cast<uint32_t>(pos));
  std::normal_distribution<float> normal(0, size);
  std::vector<float> floats(n);
  std::ranges::generate(floats, [&] { return normal(random); });
  return floats;
}

// One layer of one sequence.
class Sequence {
 public:
  explicit Sequence(const Case& c)
      : c_(c),
        attention_{.n_heads = c.n_heads,
                   .n_kv_heads = c.n_kv_heads,
                   .head_dim = c.head_dim,
                   .scale = 1 / std::sqrt(static_cast<float>(c.head_dim))},
        shape_{.n_layers = 1,
               .n_kv_heads = c.n_kv_heads,
               .head_dim = c.head_dim,
               .key_type = c.type,
               .value_type = c.type,
               .max_rows = kMostRows,
               .stores_scores = true,
               .kept_rows = 700,
               .is_remote = true,
               .swa_windows = {c.swa_window}},
        step_(kernels::make_device_step(attention_, shape_)),
        rows_(step_->make_rows(shape_)),
        cache_(shape_, rows_),
        q_(kMostTokens * heads_floats(c.n_heads)),
        k_(kMostTokens * heads_floats(c.n_kv_heads)),
        v_(kMostTokens * heads_floats(c.n_kv_heads)),
        out_(kMostTokens * heads_floats(c.n_heads)) {}

  cache::Cache& cache() { return cache_; }
  kernels::DeviceRows& rows() { return *rows_; }
  int n_fed() const { return n_fed_; }
  int infinite_at = -1;  // the position whose values are infinite

  // Feeds the next n tokens; returns [n, n_heads, head_dim].
  std::vector<float> feed(int n, bool is_prompt) {
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    const auto add = [](std::vector<float>& to, const std::vector<float>& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    for (int pos = n_fed_; pos < n_fed_ + n; ++pos) {
      add(q, queries_of(pos));
      add(k, activations(pos, heads_floats(c_.n_kv_heads), 2, 1));
      std::vector<float> values = activations(pos, heads_floats(c_.n_kv_heads), 3, 1);
      if (pos == infinite_at) {
        std::ranges::fill(values, std::numeric_limits<float>::infinity());
      }
      add(v, values);
    }
    kernels::cuda::copy_to_device(q_.data(), q.data(), q.size() * sizeof(float));
    kernels::cuda::copy_to_device(k_.data(), k.data(), k.size() * sizeof(float));
    kernels::cuda::copy_to_device(v_.data(), v.data(), v.size() * sizeof(float));
    const kernels::DeviceSlice slice{.cache = &cache_,
                                     .first_token = 0,
                                     .n_tokens = n,
                                     .first_pos = n_fed_,
                                     .is_prompt = is_prompt};
    step_->begin(
        {&slice, 1}, 0, 1,
        {.queries = q_.data(), .keys = k_.data(), .values = v_.data(), .attended = out_.data()});
    step_->attend(0);
    std::vector<float> out(q.size());
    step_->read(out.data(), out_.data(), out.size() * sizeof(float));
    n_fed_ += n;
    return out;
  }

  // Tokens in calls of the given size.
  std::vector<float> feed_in(int n, int n_at_once) {
    std::vector<float> all;
    for (int fed = 0; fed < n; fed += n_at_once) {
      const std::vector<float> part = feed(std::min(n_at_once, n - fed), true);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::vector<float> queries_of(int pos) const {
    return activations(pos, heads_floats(c_.n_heads), 1, 1.5F);
  }

  // The rows of a head as they are on the device.
  struct Copy {
    std::vector<std::byte> keys, values;
    cache::HeadRows view;
  };
  Copy copy(int kv_head) {
    Copy of_head{.keys = {}, .values = {}, .view = cache_.rows(0, kv_head)};
    const auto n = static_cast<size_t>(of_head.view.n);
    of_head.keys.resize(n * shape_.key_bytes());
    of_head.values.resize(n * shape_.value_bytes());
    rows_->read(0, kv_head, of_head.view.n, of_head.keys.data(), of_head.values.data());
    of_head.view.keys = of_head.keys.data();
    of_head.view.values = of_head.values.data();
    return of_head;
  }

  // [heads, the most slots of any]
  std::vector<float> scores() {
    std::vector<int> n_slots;
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      n_slots.push_back(cache_.rows(0, kv_head).n);
    }
    const auto stride = static_cast<size_t>(std::ranges::max(n_slots));
    std::vector<float> all(n_slots.size() * stride);
    rows_->read_scores(0, n_slots, stride, all);
    return all;
  }

  // Of tokens that were just fed, whose rows are the last.
  double error_of(const std::vector<float>& out, int first_pos) {
    const auto dim = static_cast<size_t>(c_.head_dim);
    const auto n_heads = static_cast<size_t>(c_.n_heads);
    const size_t n_tokens = out.size() / (n_heads * dim);
    std::vector<Copy> copies;
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      copies.push_back(copy(kv_head));
    }
    double worst = 0;
    for (size_t token = 0; token < n_tokens; token += 1 + token / 7) {
      const int pos = first_pos + static_cast<int>(token);
      const std::vector<float> q = queries_of(pos);
      for (size_t head = 0; head < n_heads; ++head) {
        const auto group = static_cast<size_t>(attention_.gqa_group_size());
        const std::vector<double> expected =
            oracle::attention(copies[head / group].view, q.data() + head * dim, pos,
                              static_cast<double>(attention_.scale), c_.swa_window);
        double largest = 1e-30;
        double off = 0;
        for (size_t d = 0; d < dim; ++d) {
          const double actual = static_cast<double>(out[(token * n_heads + head) * dim + d]);
          largest = std::max(largest, std::abs(expected[d]));
          off = std::isnan(actual) ? std::numeric_limits<double>::infinity()
                                   : std::max(off, std::abs(expected[d] - actual));
        }
        worst = std::max(worst, off / largest);
      }
    }
    return worst;
  }

  // Keeps some of the rows of each head, a different number of each, or hides the others.
  void cut(uint32_t seed, bool hides) {
    std::mt19937 random(seed);
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      const int n = cache_.rows(0, kv_head).n;
      std::vector<int> slots(static_cast<size_t>(n));
      std::iota(slots.begin(), slots.end(), 0);
      std::ranges::shuffle(slots, random);
      slots.resize(1 + random() % static_cast<uint32_t>(n));
      std::ranges::sort(slots);
      if (hides) {
        cache_.hide_others(0, kv_head, slots);
      } else {
        cache_.keep(0, kv_head, slots);
      }
    }
  }

 private:
  size_t heads_floats(int n_heads) const {
    return static_cast<size_t>(n_heads) * static_cast<size_t>(c_.head_dim);
  }

  Case c_;
  kernels::AttendShape attention_;
  cache::CacheShape shape_;
  std::unique_ptr<kernels::DeviceStep> step_;
  std::shared_ptr<kernels::DeviceRows> rows_;
  cache::Cache cache_;
  Array<float> q_, k_, v_, out_;
  int n_fed_ = 0;
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b,
                      const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

TEST_F(Step, PromptsAndGeneratedTokensAgreeWithDoubleLoops) {
  double worst = 0;
  for (const Case& c : kCases) {
    Sequence sequence(c);
    for (const int n : {1, 63, 66, 700, 1500, 5}) {
      const int first = sequence.n_fed();
      const double error = sequence.error_of(sequence.feed(n, true), first);
      EXPECT_LE(error, 1e-5) << name_of(c) << " " << n << " after " << first;
      worst = std::max(worst, error);
    }
    for (int i = 0; i < 3; ++i) {
      const int first = sequence.n_fed();
      EXPECT_LE(sequence.error_of(sequence.feed(1, false), first), 1e-5) << name_of(c);
    }
    sequence.cut(5, /*hides=*/false);
    for (const bool is_prompt : {true, false}) {
      const int first = sequence.n_fed();
      const double error = sequence.error_of(sequence.feed(is_prompt ? 200 : 1, is_prompt), first);
      EXPECT_LE(error, 1e-5) << name_of(c) << ", cut";
      worst = std::max(worst, error);
    }
  }
  std::printf("worst relative error %.2g\n", worst);
}

TEST_F(Step, HowAPromptIsCutDoesNotMatter) {
  for (const Case& c : kCases) {
    Sequence whole(c);
    const std::vector<float> expected = whole.feed_in(1300, 1300);
    for (const int n_at_once : {1000, 512, 97, 64}) {
      Sequence cut(c);
      expect_same_bits(cut.feed_in(1300, n_at_once), expected,
                       name_of(c) + " " + std::to_string(n_at_once));
    }
  }
}

TEST_F(Step, EvictedEqualsHiddenToTheBit) {
  for (const Case& c : kCases) {
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      std::array<std::vector<float>, 2> of_prompt;
      std::array<std::vector<float>, 2> of_generated;
      for (const bool hides : {false, true}) {
        Sequence sequence(c);
        sequence.infinite_at = seed == 3 ? 17 : -1;  // it may go, or stay: then both have it
        sequence.feed_in(1000 + 300 * static_cast<int>(seed), 1500);
        sequence.cut(seed, hides);
        of_prompt[hides ? 1 : 0] = sequence.feed(130, true);
        of_generated[hides ? 1 : 0] = sequence.feed(1, false);
      }
      expect_same_bits(of_prompt[0], of_prompt[1], name_of(c) + ", prompt");
      expect_same_bits(of_generated[0], of_generated[1], name_of(c) + ", generated");
    }
  }
}

TEST_F(Step, RowsThatStayAreTheOnesAppended) {
  for (const Case& c : kCases) {
    Sequence sequence(c);
    sequence.feed_in(2000, 1500);
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<Sequence::Copy> before;
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        before.push_back(sequence.copy(kv_head));
      }
      const std::vector<int32_t> old_positions(before[0].view.positions,
                                               before[0].view.positions + before[0].view.n);
      const std::vector<float> old_scores = sequence.scores();
      sequence.cut(11 + static_cast<uint32_t>(repeat), /*hides=*/false);
      const Sequence::Copy after = sequence.copy(0);
      const std::vector<float> scores = sequence.scores();
      const size_t row_bytes = static_cast<size_t>(c.head_dim) * 2;
      for (int slot = 0; slot < after.view.n; ++slot) {
        const auto at = static_cast<size_t>(
            std::ranges::lower_bound(old_positions, after.view.positions[slot]) -
            old_positions.begin());
        const auto to = static_cast<size_t>(slot);
        ASSERT_EQ(old_positions[at], after.view.positions[slot]);
        ASSERT_EQ(std::memcmp(after.keys.data() + to * row_bytes,
                              before[0].keys.data() + at * row_bytes, row_bytes),
                  0);
        ASSERT_EQ(std::memcmp(after.values.data() + to * row_bytes,
                              before[0].values.data() + at * row_bytes, row_bytes),
                  0);
        ASSERT_EQ(scores[to], old_scores[at]);
      }
      sequence.feed(40, true);
    }
  }
}

// The canonical sum of squares, in plain loops (kernels/cpu/rows-inl.h).
float squared_norm(const std::vector<std::byte>& rows, cache::RowType type, size_t first,
                   size_t head_dim) {
  std::array<float, 32> p{};
  for (size_t d = 0; d < head_dim; ++d) {
    const auto x = static_cast<float>(oracle::row_element(rows.data(), type, first + d));
    p[d % 32] = std::fma(x, x, p[d % 32]);
  }
  std::array<float, 8> q{};
  for (size_t j = 0; j < 8; ++j) {
    q[j] = (p[j] + p[j + 8]) + (p[j + 16] + p[j + 24]);
  }
  return ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
}

TEST_F(Step, AppendedElementsAreTheNearestAndScoresCanonical) {
  for (const Case& c : kCases) {
    Sequence sequence(c);
    sequence.feed(300, true);
    const std::vector<float> scores = sequence.scores();
    const auto dim = static_cast<size_t>(c.head_dim);
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      const Sequence::Copy held = sequence.copy(kv_head);
      for (size_t row = 0; row < 300; ++row) {
        const std::vector<float> given =
            activations(static_cast<int>(row), static_cast<size_t>(c.n_kv_heads) * dim, 2, 1);
        EXPECT_EQ(scores[static_cast<size_t>(kv_head) * 300 + row],
                  squared_norm(held.keys, c.type, row * dim, dim));
        for (size_t d = 0; d < dim; ++d) {
          const double x = static_cast<double>(given[static_cast<size_t>(kv_head) * dim + d]);
          const double stored = oracle::row_element(held.keys.data(), c.type, row * dim + d);
          const int digits = c.type == cache::RowType::kF16 ? 11 : 8;
          const int exponent = std::max(std::ilogb(x), c.type == cache::RowType::kF16 ? -14 : -126);
          ASSERT_LE(std::abs(stored - x), std::ldexp(0.5, exponent + 1 - digits)) << x;
        }
      }
    }
  }
}

TEST_F(Step, CountsWhatDoesNotFit) {
  const Case c{64, 2, 1, cache::RowType::kF16};
  Sequence sequence(c);
  sequence.infinite_at = 3;
  sequence.feed(8, true);
  EXPECT_EQ(sequence.cache().append_counts().nonfinite_values, 64);
  EXPECT_EQ(sequence.cache().append_counts().nonfinite_keys, 0);
  EXPECT_EQ(sequence.cache().append_counts().saturated, 0);
}

// Rows kept have a home of their own size, whatever was read before.
TEST_F(Step, TheDeviceHoldsWhatIsKept) {
  const Case c{128, 8, 8, cache::RowType::kF16};
  Sequence sequence(c);
  for (int i = 0; i < 4; ++i) {
    sequence.feed(1400, true);
  }
  constexpr size_t kGranule = size_t{2} << 20;
  constexpr size_t kRowBytes = 8 * (2 * 256 + 8);  // of all heads
  EXPECT_GE(sequence.cache().committed_bytes(), 5600 * kRowBytes);
  std::vector<int> slots(600);
  std::iota(slots.begin(), slots.end(), 0);
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    sequence.cache().keep(0, kv_head, slots);
  }
  const int first = sequence.n_fed();
  EXPECT_LE(sequence.error_of(sequence.feed(1, false), first), 1e-5);
  EXPECT_LE(sequence.cache().committed_bytes(), 740 * kRowBytes + 2 * kGranule);
}

TEST_F(Step, RefusesWhatHasNoKernel) {
  const kernels::AttendShape attention{.n_heads = 2, .n_kv_heads = 2, .head_dim = 48, .scale = 1};
  cache::CacheShape shape{
      .n_layers = 1, .n_kv_heads = 2, .head_dim = 48, .max_rows = 10, .is_remote = true};
  EXPECT_THROW(kernels::make_device_step(attention, shape), Error);
  shape.head_dim = 64;
  shape.value_type = cache::RowType::kBf16;
  EXPECT_THROW(kernels::make_device_step(attention, shape), Error);
}

}  // namespace
}  // namespace winnow
