// Scores, selected slots and moved rows of the GPU are the CPU's to the bit and byte: by the golden hashes that the CPU's test
// checks as well, and against a stable sort for scores made to be difficult.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "base/error.h"
#include "cuda/gpu.h"
#include "kernels/cuda/device_rows.h"
#include "oracle/select_oracle.h"
#include "support/eviction_grid.h"

namespace winnow {
namespace {

using namespace kernels::cuda;  // NOLINT(google-build-using-namespace)
using Eviction = test::OnGpu;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A head in device memory of its own. Behind each array lies a canary.
class DeviceHead {
 public:
  DeviceHead(const test::EvictionInput& input, size_t n_rows)
      : n_(n_rows),
        keys_(with_canary(std::span(input.keys))),
        values_(with_canary(std::span(input.values))),
        positions_(with_canary(std::as_bytes(std::span(input.positions)))),
        scores_(n_rows * sizeof(float) + kCanary) {
    const std::vector<float> poison(n_rows, -12345.0F);
    copy_to_device(scores_.data(), poison.data(), n_rows * sizeof(float));
  }

  HeadArrays arrays() const {
    return {.keys = keys_.data(),
            .values = values_.data(),
            .positions = reinterpret_cast<int32_t*>(positions_.data()),
            .scores = reinterpret_cast<float*>(scores_.data()),
            .n = static_cast<int>(n_)};
  }
  std::vector<float> scores() const { return read<float>(scores_, n_); }
  std::vector<std::byte> keys(size_t n) const { return read<std::byte>(keys_, n); }
  std::vector<std::byte> values(size_t n) const { return read<std::byte>(values_, n); }
  std::vector<int32_t> positions(size_t n) const { return read<int32_t>(positions_, n); }

  void expect_canaries() const {
    for (const Array<std::byte>* array : {&keys_, &values_, &positions_}) {
      const auto bytes = array->get();
      EXPECT_TRUE(std::all_of(bytes.end() - kCanary, bytes.end(),
                              [](std::byte b) { return b == std::byte{0xa5}; }));
    }
  }

 private:
  static constexpr std::ptrdiff_t kCanary = 64;

  static std::vector<std::byte> filled(std::span<const std::byte> from) {
    std::vector<std::byte> bytes(from.begin(), from.end());
    bytes.resize(bytes.size() + kCanary, std::byte{0xa5});
    return bytes;
  }
  static Array<std::byte> with_canary(std::span<const std::byte> from) {
    return Array<std::byte>(std::span<const std::byte>(filled(from)));
  }
  template <class T>
  static std::vector<T> read(const Array<std::byte>& array, size_t n) {
    std::vector<T> values(n);
    copy_from_device(values.data(), array.data(), n * sizeof(T));
    return values;
  }

  size_t n_;
  Array<std::byte> keys_;
  Array<std::byte> values_;
  Array<std::byte> positions_;
  Array<std::byte> scores_;
};

// Cases of one row format, evicted in one launch of each kernel.
struct Job {
  std::vector<test::EvictionCase> cases;
  std::vector<size_t> indices;  // in the grid
};

std::vector<test::Evicted> evict(const std::vector<test::EvictionCase>& cases, bool in_one_launch) {
  const RowFormat format{cases[0].head_dim, cases[0].type, cases[0].type};
  const Stream stream;
  std::vector<DeviceHead> owners;
  std::vector<HeadArrays> heads;
  std::vector<Quota> quotas;
  std::vector<float> filters;
  int most_rows = 0;
  int most_kept = 0;
  for (const test::EvictionCase& c : cases) {
    const test::EvictionInput input = input_of(c);
    owners.emplace_back(input, static_cast<size_t>(c.n_rows));
    heads.push_back(owners.back().arrays());
    quotas.push_back({c.n_keep, c.n_first, c.n_last});
    filters.insert(filters.end(), input.filter.begin(), input.filter.end());
    most_rows = std::max(most_rows, c.n_rows);
    most_kept = std::max(most_kept, c.n_keep);
  }
  const Array<HeadArrays> device_heads{std::span<const HeadArrays>(heads)};
  const Array<Quota> device_quotas{std::span<const Quota>(quotas)};
  const Array<float> device_filters{std::span<const float>(filters)};
  const auto stride = static_cast<size_t>(most_kept);
  const Array<int32_t> slots(heads.size() * stride);
  const Array<int32_t> n_nan(heads.size());
  const Heads all{device_heads.data(), static_cast<int>(heads.size()), most_rows};

  std::vector<test::Evicted> results(cases.size());
  score_norms(format, all, 1.0F, stream);
  stream.wait();
  for (size_t i = 0; i < cases.size(); ++i) {
    results[i].norms = owners[i].scores();
  }
  score_dots(format, all, device_filters.data(), stream);
  stream.wait();
  for (size_t i = 0; i < cases.size(); ++i) {
    results[i].dots = owners[i].scores();
  }
  if (in_one_launch) {
    select_and_compact(format, all, device_quotas.data(), {slots.data(), stride}, n_nan.data(),
                       stream);
  } else {
    select(all, device_quotas.data(), {slots.data(), stride}, n_nan.data(), stream);
    compact(format, all, device_quotas.data(), {slots.data(), stride}, stream);
  }
  stream.wait();
  const std::vector<int32_t> all_slots = slots.get();
  const std::vector<int32_t> all_nan = n_nan.get();
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto n_kept = static_cast<size_t>(std::min(cases[i].n_keep, cases[i].n_rows));
    const auto first = all_slots.begin() + static_cast<std::ptrdiff_t>(i * stride);
    results[i].slots.assign(first, first + static_cast<std::ptrdiff_t>(n_kept));
    results[i].n_nan = all_nan[i];
    results[i].keys = owners[i].keys(n_kept * format.key_bytes());
    results[i].values = owners[i].values(n_kept * format.value_bytes());
    results[i].positions = owners[i].positions(n_kept);
    owners[i].expect_canaries();
    // Scores move with their rows.
    const std::vector<float> moved = owners[i].scores();
    for (size_t row = 0; row < n_kept; ++row) {
      const float before = results[i].dots[static_cast<size_t>(results[i].slots[row])];
      EXPECT_EQ(std::bit_cast<uint32_t>(moved[row]), std::bit_cast<uint32_t>(before));
    }
  }
  return results;
}

void expect_golden(bool in_one_launch, bool together) {
  const std::vector<test::EvictionCase> grid = test::eviction_grid();
  const auto golden = test::golden_hashes();
  ASSERT_EQ(grid.size(), golden.size());
  std::map<std::tuple<cache::RowType, int, size_t>, Job> jobs;
  for (size_t i = 0; i < grid.size(); ++i) {
    Job& job = jobs[{grid[i].type, grid[i].head_dim, together ? 0 : i}];
    job.cases.push_back(grid[i]);
    job.indices.push_back(i);
  }
  for (const auto& [format, job] : jobs) {
    const std::vector<test::Evicted> results = evict(job.cases, in_one_launch);
    for (size_t i = 0; i < results.size(); ++i) {
      const test::EvictionHashes hashes = hashes_of(results[i]);
      const test::EvictionHashes& expected = golden[job.indices[i]];
      EXPECT_EQ(hashes.norms, expected.norms) << name_of(job.cases[i]);
      EXPECT_EQ(hashes.dots, expected.dots) << name_of(job.cases[i]);
      EXPECT_EQ(hashes.slots, expected.slots) << name_of(job.cases[i]);
      EXPECT_EQ(hashes.rows, expected.rows) << name_of(job.cases[i]);
    }
  }
}

TEST_F(Eviction, GoldenHashesWithAllHeadsInOneLaunch) {
  expect_golden(false, true);
}

TEST_F(Eviction, GoldenHashesWithOneHeadALaunch) {
  expect_golden(false, false);
}

TEST_F(Eviction, GoldenHashesWhereSelectingAndMovingAreOneKernel) {
  expect_golden(true, true);
  expect_golden(true, false);
}

using Draw = std::function<float(std::mt19937&, int slot)>;

struct Kind {
  const char* name;
  Draw draw;
};

float draw_normal(std::mt19937& random) {
  return std::normal_distribution<float>()(random);
}

float draw_special(std::mt19937& random) {
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  constexpr float kSpecial[] = {
      0.0F,  -0.0F, kInfinity, -kInfinity, kNan,
      -kNan, 1.0F,  kDenormal, -kDenormal, std::numeric_limits<float>::max()};
  return kSpecial[random() % std::size(kSpecial)];
}

const std::vector<Kind> kKinds = {
    {"normal", [](auto& random, int /*slot*/) { return draw_normal(random); }},
    {"drifting",
     [](auto& random, int slot) { return draw_normal(random) + 0.01F * static_cast<float>(slot); }},
    {"tied", [](auto& random, int /*slot*/) { return std::round(4 * draw_normal(random)) / 4; }},
    {"equal", [](auto& /*random*/, int /*slot*/) { return -3.5F; }},
    {"zeros", [](auto& random, int /*slot*/) { return random() % 2 == 0 ? 0.0F : -0.0F; }},
    {"NaN only", [](auto& /*random*/, int /*slot*/) { return kNan; }},
    {"one number", [](auto& /*random*/, int slot) { return slot == 3 ? 1.0F : -kNan; }},
    {"special", [](auto& random, int /*slot*/) { return draw_special(random); }},
    {"infinite only", [](auto& /*random*/, int /*slot*/) { return kInfinity; }},
    {"minus infinite only", [](auto& /*random*/, int /*slot*/) { return -kInfinity; }},
    {"periodic", [](auto& /*random*/,
                    int slot) { return slot % 32 == 0 ? 100.0F : static_cast<float>(slot % 3); }},
    {"rising", [](auto& /*random*/, int slot) { return static_cast<float>(slot); }},
    {"falling", [](auto& /*random*/, int slot) { return -static_cast<float>(slot); }},
    {"equal in 11 bits",
     [](auto& random, int /*slot*/) {
       return 1.0F + static_cast<float>(random() % (1 << 20)) * 0x1p-23F;
     }},
    {"equal in 22 bits",
     [](auto& random, int /*slot*/) {
       return 1.0F + static_cast<float>(random() % 1000) * 0x1p-23F;
     }},
};

struct Row {
  std::string name;
  std::vector<float> scores;
  Quota quota;
};

// Selects all rows in one launch, each against the oracle.
void expect_selected(const std::vector<Row>& rows) {
  const Stream stream;
  std::vector<Array<float>> owners;
  std::vector<HeadArrays> heads;
  std::vector<Quota> quotas;
  int most_rows = 0;
  size_t stride = 1;
  for (const Row& row : rows) {
    owners.emplace_back(std::span<const float>(row.scores));
    const int n = static_cast<int>(row.scores.size());
    heads.push_back({nullptr, nullptr, nullptr, owners.back().data(), n});
    quotas.push_back(row.quota);
    most_rows = std::max(most_rows, n);
    stride = std::max(stride, static_cast<size_t>(std::min(row.quota.n_keep, n)) + 1);
  }
  const Array<HeadArrays> device_heads{std::span<const HeadArrays>(heads)};
  const Array<Quota> device_quotas{std::span<const Quota>(quotas)};
  constexpr int32_t kCanary = -77;
  const std::vector<int32_t> canaries(rows.size() * stride, kCanary);
  const Array<int32_t> slots{std::span<const int32_t>(canaries)};
  const Array<int32_t> n_nan(rows.size());
  select({device_heads.data(), static_cast<int>(rows.size()), most_rows}, device_quotas.data(),
         {slots.data(), stride}, n_nan.data(), stream);
  stream.wait();
  const std::vector<int32_t> kept = slots.get();
  const std::vector<int32_t> counted = n_nan.get();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const int n = static_cast<int>(row.scores.size());
    const int n_keep = std::min(row.quota.n_keep, n);
    const auto expected =
        row.quota.n_keep >= n
            ? oracle::select(row.scores, n, 0, 0)
            : oracle::select(row.scores, n_keep, row.quota.n_first, row.quota.n_last);
    const auto first = kept.begin() + static_cast<std::ptrdiff_t>(i * stride);
    const bool is_right = std::equal(expected.begin(), expected.end(), first);
    ASSERT_TRUE(is_right) << row.name << ", n " << n << ", keep " << row.quota.n_keep << ", first "
                          << row.quota.n_first << ", last " << row.quota.n_last;
    ASSERT_EQ(*(first + n_keep), kCanary) << row.name << ", n " << n;
    const int n_choose = row.quota.n_keep - row.quota.n_first - row.quota.n_last;
    const auto expected_nan = row.quota.n_keep >= n || n_choose == 0
                                  ? 0
                                  : std::count_if(row.scores.begin() + row.quota.n_first,
                                                  row.scores.end() - row.quota.n_last,
                                                  [](float x) { return std::isnan(x); });
    ASSERT_EQ(counted[i], expected_nan) << row.name << ", n " << n;
  }
}

Quota draw_quota(std::mt19937& random, int n) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  Quota quota{.n_keep = 1 + below(n + 2), .n_first = 0, .n_last = 0};
  if (below(2) == 0) {
    quota.n_first = below(std::min(quota.n_keep, n) + 1);
    quota.n_last = below(std::min(quota.n_keep, n) - quota.n_first + 1);
  }
  return quota;
}

std::vector<float> draw_scores(const Kind& kind, int n, std::mt19937& random) {
  std::vector<float> scores;
  for (int slot = 0; slot < n; ++slot) {
    scores.push_back(kind.draw(random, slot));
  }
  return scores;
}

TEST_F(Eviction, SelectionEqualsAStableSortOnAnyInput) {
  std::mt19937 random(1);
  for (const Kind& kind : kKinds) {
    // Many heads, a block each; a few, a cluster each; and one alone.
    for (const int n_heads : {300, 20, 7, 1}) {
      for (const int most : {150, 5000, 40000}) {
        if (n_heads * most > 3'000'000) {
          continue;
        }
        std::vector<Row> rows;
        for (int i = 0; i < n_heads; ++i) {
          const int n = 1 + static_cast<int>(random() % static_cast<unsigned>(most));
          rows.push_back({kind.name, draw_scores(kind, n, random), draw_quota(random, n)});
        }
        expect_selected(rows);
      }
    }
  }
}

TEST_F(Eviction, SelectionTakesMoreScoresThanSharedMemoryHolds) {
  std::mt19937 random(2);
  for (const Kind& kind : {kKinds[0], kKinds[2], kKinds[3], kKinds[7]}) {
    for (const int n : {131072, 1'500'000}) {
      for (const int n_heads : {1, 10}) {
        std::vector<Row> rows;
        const std::vector<float> scores = draw_scores(kind, n, random);
        for (int i = 0; i < n_heads; ++i) {
          rows.push_back({kind.name, scores, draw_quota(random, n)});
        }
        expect_selected(rows);
      }
    }
    // One block a head.
    std::vector<Row> rows;
    const std::vector<float> scores = draw_scores(kind, 70000, random);
    for (int i = 0; i < 140; ++i) {
      rows.push_back({kind.name, scores, draw_quota(random, 70000)});
    }
    expect_selected(rows);
  }
}

TEST_F(Eviction, TheSameBitsAHundredTimes) {
  std::vector<test::EvictionCase> cases;
  for (const test::EvictionCase& c : test::eviction_grid()) {
    if (c.type == cache::RowType::kF16 && c.head_dim == 128 && c.n_rows < 5000) {
      cases.push_back(c);
    }
  }
  ASSERT_FALSE(cases.empty());
  std::vector<test::EvictionHashes> first;
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::vector<test::EvictionHashes> hashes;
    for (const test::Evicted& evicted : evict(cases, repeat % 2 == 0)) {
      hashes.push_back(hashes_of(evicted));
    }
    if (repeat == 0) {
      first = hashes;
    }
    ASSERT_EQ(hashes, first);
  }
}

// Every kernel on few rows, and once on enough for a cluster of blocks: for compute-sanitizer, which is slow.
TEST_F(Eviction, SanitizedOnFewRows) {
  const auto grid = test::eviction_grid();
  const auto golden = test::golden_hashes();
  bool is_clustered = false;
  for (size_t i = 0; i < grid.size(); ++i) {
    const test::EvictionCase& c = grid[i];
    const bool needs_cluster = !is_clustered && c.n_rows == 4097 && c.n_keep < c.n_rows;
    if (needs_cluster || (c.head_dim == 64 && c.n_rows <= 130)) {
      is_clustered = is_clustered || needs_cluster;
      for (const bool in_one_launch : {false, true}) {
        EXPECT_EQ(hashes_of(evict({c}, in_one_launch)[0]), golden[i]) << name_of(c);
      }
    }
  }
  EXPECT_TRUE(is_clustered);
}

TEST_F(Eviction, UnknownHeadSizesAreRefused) {
  const Stream stream;
  try {
    score_norms({.head_dim = 72}, {nullptr, 1, 1}, 1.0F, stream);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_STREQ(
        error.what(),
        "heads of 72 elements have no kernel on the GPU; those of 64, 80, 96, 128, 256 have");
  }
}

}  // namespace
}  // namespace winnow
