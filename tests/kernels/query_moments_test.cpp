// Moments of queries, against plain sums over queries that were never rotated.

#include "kernels/query_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cache_ops.h"
#include "support/attend.h"
#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using kernels::QueryMoments;
using kernels::Rotation;

constexpr int kHeads = 3;

Rotation rotation(size_t n_rot, Rotation::Pairs layout) {
  return {.layout = layout,
          .step = std::pow(10000.0F, -2.0F / static_cast<float>(n_rot)),
          .pairs = std::vector<Rotation::Pair>(n_rot / 2)};
}

// Queries of consecutive tokens before and after rotation [n_tokens, kHeads, head_dim].
struct Queries {
  int head_dim;
  Rotation turning;
  std::vector<float> plain;
  std::vector<float> rotated;

  Queries(int dim, int n_tokens, Rotation::Pairs layout, size_t n_rot)
      : head_dim(dim), turning(rotation(n_rot, layout)) {
    std::mt19937 random(static_cast<unsigned>(dim));
    plain = test::random_floats(random, static_cast<size_t>(n_tokens * kHeads * dim));
    for (size_t i = 0; i < plain.size();
         ++i) {  // means that are not 0, and elements that go together
      plain[i] += i % 3 == 0 ? 2.0F : 0.5F * plain[i - 1];
    }
    rotated = plain;
    std::vector<float> turns(n_rot);
    for (size_t i = 0; i < static_cast<size_t>(n_tokens * kHeads); ++i) {
      kernels::turns_at(turning, static_cast<int>(i) / kHeads, turns);
      kernels::turn(
          turning, turns,
          std::span(rotated).subspan(i * static_cast<size_t>(dim), static_cast<size_t>(dim)));
    }
  }

  size_t token() const { return static_cast<size_t>(kHeads * head_dim); }
  int n_tokens() const { return static_cast<int>(plain.size() / token()); }

  // In chunks as given, the last of them as often as needed, by so many threads in turns.
  QueryMoments count(const std::vector<int>& chunks, int n_threads = 1) const {
    QueryMoments moments({.n_heads = kHeads, .head_dim = head_dim, .is_watched = {false, true}});
    cache::Cache cache({.n_layers = 2, .n_kv_heads = 1, .head_dim = head_dim, .max_rows = 1});
    kernels::StepContext step(
        {.n_heads = kHeads, .n_kv_heads = 1, .head_dim = head_dim, .scale = 1.0F}, n_threads,
        {.all = turning, .windowed = {}});
    size_t chunk = 0;
    for (int pos = 0; pos < n_tokens();) {
      const int n = std::min(chunks[chunk], n_tokens() - pos);
      const kernels::Slice slice{.cache = &cache,
                                 .first_token = 0,
                                 .n_tokens = n,
                                 .first_pos = pos,
                                 .first_rotation = pos,
                                 .is_prompt = n > 1,
                                 .moments = &moments};
      const std::span<const float> q = std::span(rotated).subspan(
          static_cast<size_t>(pos) * token(), static_cast<size_t>(n) * token());
      for (const int layer : {0, 1}) {
        test::attend_as_node({.step = &step, .layer = layer}, slice, q, n_threads);
      }
      pos += n;
      chunk = std::min(chunk + 1, chunks.size() - 1);
    }
    return moments;
  }
};

bool same_sums(const QueryMoments& a, const QueryMoments& b) {
  const auto x = a.sums(1);
  const auto y = b.sums(1);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0 &&
         std::equal(a.counts(1).begin(), a.counts(1).end(), b.counts(1).begin());
}

std::vector<Queries> samples() {
  std::vector<Queries> all;
  for (const auto layout : {Rotation::Pairs::kNeighbours, Rotation::Pairs::kHalves}) {
    all.emplace_back(8, 40, layout, 8);
    all.emplace_back(20, 40, layout, 12);
    all.emplace_back(64, 300, layout, 64);
    all.emplace_back(96, 70, layout, 48);
    all.emplace_back(128, 70, layout, 128);
  }
  return all;
}

TEST(QueryMoments, AreThoseOfTheQueriesBeforeRotation) {
  for (const Queries& queries : samples()) {
    const auto dim = static_cast<size_t>(queries.head_dim);
    const QueryMoments moments = queries.count({512});
    EXPECT_FALSE(moments.watches(0));
    const auto n = static_cast<size_t>(queries.n_tokens() - kernels::kUncountedQueries);
    std::vector<double> mean(dim);
    std::vector<double> covariance(dim * dim);
    for (int head = 0; head < kHeads; ++head) {
      ASSERT_EQ(moments.counts(1)[static_cast<size_t>(head)], static_cast<int64_t>(n));
      const auto element = [&](size_t i, size_t e) {
        return static_cast<double>(
            queries.plain[(i + kernels::kUncountedQueries) * queries.token() +
                          static_cast<size_t>(head) * dim + e]);
      };
      std::vector<double> expected(dim);
      for (size_t e = 0; e < dim; ++e) {
        for (size_t i = 0; i < n; ++i) {
          expected[e] += element(i, e) / static_cast<double>(n);
        }
      }
      moments.mean(1, head, mean);
      moments.covariance(1, head, covariance);
      for (size_t a = 0; a < dim; ++a) {
        ASSERT_NEAR(mean[a], expected[a], 1e-6);
        for (size_t b = 0; b < dim; ++b) {
          double sum = 0;
          for (size_t i = 0; i < n; ++i) {
            sum += (element(i, a) - expected[a]) * (element(i, b) - expected[b]);
          }
          ASSERT_NEAR(covariance[a * dim + b], sum / static_cast<double>(n), 3e-6) << a << " " << b;
        }
      }
    }
  }
}

TEST(QueryMoments, DoNotDependOnChunksThreadsNorTheInstructionSet) {
  for (const Queries& queries : samples()) {
    const QueryMoments whole = queries.count({512});
    EXPECT_TRUE(same_sums(queries.count({1}), whole));
    EXPECT_TRUE(same_sums(queries.count({2, 1, 7, 31, 33}), whole));
    EXPECT_TRUE(same_sums(queries.count({45, 32}, 2), whole));
    test::for_every_instruction_set([&](const std::string& name) {
      EXPECT_TRUE(same_sums(queries.count({19}, 5), whole)) << name;
    });
  }
}

TEST(QueryMoments, AQueryThatIsNotFiniteIsNotCounted) {
  Queries queries(64, 50, Rotation::Pairs::kHalves, 64);
  Queries fewer = queries;
  for (const size_t token : {size_t{10}, size_t{49}}) {
    const size_t at = token * queries.token() + 64 + 5;  // of head 1 alone
    queries.rotated[at] = token == 10 ? std::numeric_limits<float>::quiet_NaN()
                                      : std::numeric_limits<float>::infinity();
  }
  const QueryMoments moments = queries.count({20});
  const QueryMoments all = fewer.count({20});
  EXPECT_EQ(moments.counts(1)[0], 46);
  EXPECT_EQ(moments.counts(1)[1], 44);
  const size_t head = QueryMoments::sum_doubles(64);
  for (size_t i = 0; i < moments.sums(1).size(); ++i) {
    ASSERT_TRUE(std::isfinite(moments.sums(1)[i]));
    if (i / head != 1) {
      ASSERT_EQ(moments.sums(1)[i], all.sums(1)[i]);
    }
  }
}

TEST(QueryMoments, OfNoQueriesAreZero) {
  const QueryMoments moments = Queries(20, 4, Rotation::Pairs::kHalves, 12).count({4});
  std::vector<double> mean(20, 1.0);
  std::vector<double> covariance(400, 1.0);
  moments.mean(1, 2, mean);
  moments.covariance(1, 2, covariance);
  EXPECT_EQ(mean, std::vector<double>(20));
  EXPECT_EQ(covariance, std::vector<double>(400));
  EXPECT_EQ(moments.bytes(), kHeads * (sizeof(int64_t) + QueryMoments::sum_doubles(20) * 8));
}

}  // namespace
}  // namespace winnow
