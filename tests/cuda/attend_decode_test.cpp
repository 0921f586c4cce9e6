// Decoding on the GPU: against double loops, evicted = masked to the bit, and the same bits whatever else is computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

#include "base/error.h"
#include "cuda/gpu.h"
#include "kernels/cuda/attend_decode.h"
#include "oracle/attention_oracle.h"
#include "support/eviction_grid.h"

namespace winnow {
namespace {

using namespace kernels::cuda;  // NOLINT(google-build-using-namespace)
using cache::RowType;
using Attend = test::OnGpu;

struct Case {
  int head_dim, n_heads, n_kv_heads;
  RowType type;

  int group() const { return n_heads / n_kv_heads; }
  size_t row_bytes() const { return static_cast<size_t>(head_dim) * 2; }
  DecodeShape shape() const {
    return {.format = {head_dim, type, type},
            .gqa_group_size = group(),
            .n_kv_heads = n_kv_heads,
            .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  }
};

constexpr int kFarPosition = 1 << 21;

constexpr Case kShapes[] = {
    {64, 9, 3, RowType::kF16},   {64, 14, 2, RowType::kBf16}, {64, 5, 5, RowType::kF16},
    {80, 6, 2, RowType::kBf16},  {80, 8, 2, RowType::kF16},   {96, 4, 1, RowType::kF16},
    {96, 16, 1, RowType::kBf16}, {128, 32, 8, RowType::kF16}, {128, 12, 2, RowType::kBf16},
    {128, 2, 2, RowType::kF16},  {128, 24, 2, RowType::kF16}, {256, 4, 1, RowType::kF16},
    {256, 16, 2, RowType::kBf16}};

// One KV head on the host.
struct Head {
  std::vector<std::byte> keys, values;  // [n, head_dim]
  std::vector<int32_t> positions;
  std::vector<uint8_t> hidden;  // empty: none is
  std::vector<float> q;         // [group, head_dim]
  int pos = 0;
  int swa_window = 0;
  bool has_nonfinite_values = false;

  int n() const { return static_cast<int>(positions.size()); }
};

std::vector<float> random_floats(std::mt19937& random, size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (float& x : floats) {
    x = normal(random) * (random() % 16 == 0 ? 3.0F : 1.0F);
  }
  return floats;
}

// All tokens at positions 0 … n_tokens - 1, for a query at `pos`.
Head full_head(std::mt19937& random, const Case& c, int n_tokens, int pos) {
  const size_t elements = static_cast<size_t>(n_tokens) * static_cast<size_t>(c.head_dim);
  Head head;
  head.keys = test::random_elements(static_cast<uint32_t>(random()), c.type, elements);
  head.values = test::random_elements(static_cast<uint32_t>(random()), c.type, elements);
  head.positions.resize(static_cast<size_t>(n_tokens));
  std::iota(head.positions.begin(), head.positions.end(), 0);
  head.q = random_floats(random, static_cast<size_t>(c.group() * c.head_dim));
  // Elements reach 8, so that scores would be very large.
  for (float& x : head.q) {
    x *= 0.3F;
  }
  head.pos = pos;
  return head;
}

std::vector<int> random_slots(std::mt19937& random, int n, int n_keep) {
  std::vector<int> slots(static_cast<size_t>(n));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(static_cast<size_t>(n_keep));
  std::sort(slots.begin(), slots.end());
  return slots;
}

Head evicted(const Head& full, const Case& c, const std::vector<int>& slots) {
  Head head = full;
  head.keys.clear();
  head.values.clear();
  head.positions.clear();
  for (const int slot : slots) {
    const auto copy_row = [&](const std::vector<std::byte>& from, std::vector<std::byte>& to) {
      const auto row =
          from.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(slot) * c.row_bytes());
      to.insert(to.end(), row, row + static_cast<std::ptrdiff_t>(c.row_bytes()));
    };
    copy_row(full.keys, head.keys);
    copy_row(full.values, head.values);
    head.positions.push_back(full.positions[static_cast<size_t>(slot)]);
  }
  return head;
}

Head masked(const Head& full, const std::vector<int>& slots) {
  Head head = full;
  head.hidden.assign(head.positions.size(), cache::kHidden);
  for (const int slot : slots) {
    head.hidden[static_cast<size_t>(slot)] = cache::kVisible;
  }
  return head;
}

// Heads in device memory, ready to attend any number of times.
class OnDevice {
 public:
  OnDevice(const Case& c, const std::vector<Head>& heads)
      : n_out_(static_cast<size_t>(c.group() * c.head_dim)), out_(heads.size() * n_out_) {
    int most_rows = 0;
    std::vector<kernels::cuda::DecodeHead> described;
    for (const Head& head : heads) {
      const auto keep = [this](std::span<const std::byte> bytes) {
        memory_.emplace_back(std::max<size_t>(bytes.size(), 16));
        memory_.back().set(bytes);
        return memory_.back().data();
      };
      const auto positions = std::as_bytes(std::span(head.positions));
      described.push_back(
          {.keys = keep(head.keys),
           .values = keep(head.values),
           .positions = reinterpret_cast<const int32_t*>(keep(positions)),
           .hidden = head.hidden.empty() ? nullptr
                                         : reinterpret_cast<const uint8_t*>(
                                               keep(std::as_bytes(std::span(head.hidden)))),
           .slots = head.hidden.empty() ? nullptr
                                        : reinterpret_cast<int32_t*>(
                                              keep(std::as_bytes(std::span(head.positions)))),
           .q = reinterpret_cast<const float*>(keep(std::as_bytes(std::span(head.q)))),
           .out = out_.data() + described.size() * n_out_,
           .n = head.n(),
           .pos = head.pos,
           .swa_window = head.swa_window,
           .has_nonfinite_values = head.has_nonfinite_values});
      most_rows = std::max(most_rows, head.n());
    }
    n_ = static_cast<int>(heads.size());
    heads_.emplace(std::span<const kernels::cuda::DecodeHead>(described));
    plan_.emplace(c.shape(), n_, n_, most_rows);
    plan_->prepare(heads_->data(), n_, most_rows, stream_);
  }

  // [heads, group, head_dim]
  std::vector<float> attend(int n_calls = 1) {
    fill_bytes(out_.data(), 0xff, out_.size() * sizeof(float), stream_);
    for (int call = 0; call < n_calls; ++call) {
      const int first = n_ * call / n_calls;
      plan_->attend(first, n_ * (call + 1) / n_calls - first, stream_);
    }
    stream_.wait();
    return out_.get();
  }

 private:
  size_t n_out_;
  int n_ = 0;
  Stream stream_;
  std::vector<Array<std::byte>> memory_;
  Array<float> out_;
  std::optional<Array<kernels::cuda::DecodeHead>> heads_;
  std::optional<DecodePlan> plan_;
};

std::vector<float> attend(const Case& c, const std::vector<Head>& heads) {
  return OnDevice(c, heads).attend();
}

double error_against_oracle(const Case& c, const std::vector<Head>& heads,
                            const std::vector<float>& outputs) {
  const auto dim = static_cast<size_t>(c.head_dim);
  const auto group = static_cast<size_t>(c.group());
  double worst = 0;
  for (size_t i = 0; i < heads.size(); ++i) {
    const Head& head = heads[i];
    const cache::HeadRows rows{.keys = head.keys.data(),
                               .values = head.values.data(),
                               .positions = head.positions.data(),
                               .scores = nullptr,
                               .mass = nullptr,
                               .hidden = head.hidden.empty() ? nullptr : head.hidden.data(),
                               .n = head.n(),
                               .n_hidden = 0,
                               .head_dim = c.head_dim,
                               .key_type = c.type,
                               .value_type = c.type,
                               .has_nonfinite_values = false};
    for (size_t query = 0; query < group; ++query) {
      const auto expected =
          oracle::attention(rows, head.q.data() + query * dim, head.pos,
                            static_cast<double>(c.shape().scale), head.swa_window);
      const float* const actual = outputs.data() + (i * group + query) * dim;
      double largest = 1e-30;
      double difference = 0;
      for (size_t d = 0; d < dim; ++d) {
        largest = std::max(largest, std::abs(expected[d]));
        const double off = std::abs(expected[d] - static_cast<double>(actual[d]));
        difference =
            std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(difference, off);
      }
      worst = std::max(worst, difference / largest);
    }
  }
  return worst;
}

int draw(std::mt19937& random, int first, int last) {
  return std::uniform_int_distribution<int>(first, last)(random);
}

TEST_F(Attend, AgreesWithDoubleLoopsOnRaggedHeads) {
  std::mt19937 random(1);
  double worst = 0;
  for (const Case& c : kShapes) {
    for (const int n : {1, 2, 7, 63, 64, 65, 129, 255, 257, 600, 1500, 4095, 5000, 17000, 33000}) {
      for (const bool has_window : {false, true}) {
        std::vector<Head> heads;
        for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
          const Head full = full_head(random, c, n, n - 1);
          heads.push_back(evicted(full, c, random_slots(random, n, draw(random, 1, n))));
          heads.back().swa_window = has_window ? 1 + n / 3 : 0;
        }
        const double error = error_against_oracle(c, heads, attend(c, heads));
        EXPECT_LE(error, 1e-5) << c.head_dim << " " << c.n_heads << " " << n << " " << has_window;
        worst = std::max(worst, error);
      }
    }
  }
  RecordProperty("worst_relative_error", std::to_string(worst));
  std::printf("worst relative error %.2g\n", worst);
}

// Long sequences of which little is left: many tiles to a part, and numbers of heads that clusters of all sizes are made for.
TEST_F(Attend, AgreesWithDoubleLoopsFarFromTheStart) {
  std::mt19937 random(6);
  for (const Case& c : {kShapes[0], kShapes[7], kShapes[8], kShapes[11]}) {
    for (const int n_heads : {1, 9, 20, 70}) {
      std::vector<Head> heads;
      for (int i = 0; i < n_heads; ++i) {
        const int n = draw(random, 1, 900);
        heads.push_back(full_head(random, c, n, 0));
        heads.back().pos = draw(random, 100'000, kFarPosition - 1);
        int32_t pos = 0;
        for (int32_t& p : heads.back().positions) {
          p = pos = std::min(heads.back().pos, pos + draw(random, 1, 1 + 2 * heads.back().pos / n));
        }
      }
      EXPECT_LE(error_against_oracle(c, heads, attend(c, heads)), 1e-5)
          << c.head_dim << " " << n_heads;
    }
  }
}

// Queries of any size: they are cut into parts of half precision.
TEST_F(Attend, AgreesWithDoubleLoopsForSmallAndLargeQueries) {
  std::mt19937 random(7);
  for (const Case& c : {kShapes[0], kShapes[1], kShapes[7], kShapes[8]}) {
    for (const float size : {1e-30F, 1e-6F, 1e-3F, 4.0F}) {
      std::vector<Head> heads{full_head(random, c, 700, 699)};
      for (float& x : heads[0].q) {
        x *= size;
      }
      // A difference of scores grows with scores: beyond a few dozen any sum in floats is further off.
      EXPECT_LE(error_against_oracle(c, heads, attend(c, heads)), size > 1 ? 1e-4 : 1e-5) << size;
    }
  }
}

TEST_F(Attend, EvictedEqualsMaskedToTheBit) {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (const Case& c : kShapes) {
      const int n = draw(random, 1, repeat % 4 == 0 ? 20000 : 3000);
      std::vector<Head> cut;
      std::vector<Head> hidden;
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        Head full = full_head(random, c, n, n - 1);
        if (repeat % 5 == 4) {  // what is evicted may even be infinite
          const size_t at = static_cast<size_t>(draw(random, 0, n * c.head_dim - 1));
          const uint16_t infinity = c.type == RowType::kF16 ? 0x7c00 : 0x7f80;
          std::memcpy(full.values.data() + at * 2, &infinity, 2);
          full.has_nonfinite_values = true;
        }
        const auto slots = random_slots(random, n, draw(random, 1, n));
        cut.push_back(evicted(full, c, slots));
        hidden.push_back(masked(full, slots));
      }
      const auto of_cut = attend(c, cut);
      const auto of_hidden = attend(c, hidden);
      ASSERT_EQ(std::memcmp(of_cut.data(), of_hidden.data(), of_cut.size() * sizeof(float)), 0)
          << c.head_dim << " " << c.n_heads << " " << n << " " << repeat;
    }
  }
}

// Heads of sequences at different positions in one call, each alone, in another order, and a hundred times.
TEST_F(Attend, TheSameBitsWithAnyNeighboursAndAHundredTimes) {
  std::mt19937 random(3);
  for (const Case& c : kShapes) {
    std::vector<Head> heads;
    for (int i = 0; i < 5; ++i) {
      const int n = draw(random, 1, 9000);
      heads.push_back(full_head(random, c, n, n - 1 + draw(random, 0, 5000)));
    }
    OnDevice together(c, heads);
    const auto expected = together.attend();
    for (int repeat = 0; repeat < 100; ++repeat) {
      const auto again = together.attend(1 + repeat % 4);
      ASSERT_EQ(std::memcmp(again.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << repeat;
    }
    const size_t n_out = expected.size() / heads.size();
    for (size_t i = 0; i < heads.size(); ++i) {
      const auto alone = attend(c, {heads[i]});
      EXPECT_EQ(std::memcmp(alone.data(), expected.data() + i * n_out, n_out * sizeof(float)), 0)
          << i;
    }
    std::vector<Head> reversed(heads.rbegin(), heads.rend());
    const auto backwards = attend(c, reversed);
    for (size_t i = 0; i < heads.size(); ++i) {
      EXPECT_EQ(std::memcmp(backwards.data() + (heads.size() - 1 - i) * n_out,
                            expected.data() + i * n_out, n_out * sizeof(float)),
                0);
    }
  }
}

// Few rows, every kernel: for compute-sanitizer, which is slow.
TEST_F(Attend, SanitizedOnFewRows) {
  std::mt19937 random(5);
  for (const Case& c : kShapes) {
    std::vector<Head> heads;
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      heads.push_back(full_head(random, c, draw(random, 1, 900), 899));
    }
    EXPECT_LE(error_against_oracle(c, heads, attend(c, heads)), 1e-5);
  }
}

TEST_F(Attend, NothingVisibleGivesZeros) {
  std::mt19937 random(4);
  const Case c{128, 4, 2, RowType::kF16};
  Head empty = full_head(random, c, 300, 299);
  empty = evicted(empty, c, {});
  Head all_hidden = masked(full_head(random, c, 300, 299), {});
  for (const float x : attend(c, {empty, all_hidden})) {
    EXPECT_EQ(x, 0.0F);
  }
}

TEST_F(Attend, UnsupportedShapesAreRefused) {
  const auto refused = [](const DecodeShape& shape, int most_rows) {
    try {
      DecodePlan(shape, 1, 1, most_rows);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kUnsupported ? std::string(error.what()) : "another error";
    }
    return std::string("none");
  };
  DecodeShape shape = kShapes[0].shape();
  EXPECT_EQ(refused(shape, 1 << 20), "none");
  EXPECT_EQ(refused(shape, 1 << 24),
            "16777216 rows in a head are more than attention on the GPU takes; at most 2097152 are "
            "allowed");
  shape.format.value_type = RowType::kBf16;
  EXPECT_EQ(refused(shape, 100),
            "rows with keys in f16 and values in bf16 have no attention kernel on the GPU; those "
            "with both "
            "in f16 or both in bf16 have");
  shape.format.head_dim = 20;
  EXPECT_EQ(refused(shape, 100),
            "heads of 20 elements have no kernel on the GPU; those of 64, 80, 96, 128, 256 have");
}

}  // namespace
}  // namespace winnow
