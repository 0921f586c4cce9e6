// Scores, selected slots and moved rows are what they were when the golden hashes were made: the CPU's half of the proof that all
// backends keep the same rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cache/cache.h"
#include "kernels/row_kernels.h"
#include "policy/select.h"
#include "support/eviction_grid.h"
#include "support/instruction_sets.h"

namespace winnow {
namespace {

cache::Cache cache_of(const test::EvictionCase& c) {
  return cache::Cache({.n_layers = 1,
                       .n_kv_heads = 1,
                       .head_dim = c.head_dim,
                       .key_type = c.type,
                       .value_type = c.type,
                       .max_rows = c.n_rows});
}

test::Evicted evict(const test::EvictionCase& c, const test::EvictionInput& input) {
  cache::Cache original = cache_of(c);
  const cache::Cache::Target target = original.reserve(0, 0, c.n_rows);
  std::ranges::copy(input.keys, target.keys);
  std::ranges::copy(input.values, target.values);
  std::ranges::copy(input.positions, target.positions);
  original.commit(0, 0, c.n_rows, {});

  test::Evicted evicted;
  const cache::HeadRows rows = original.rows(0, 0);
  std::vector<int> all(static_cast<size_t>(c.n_rows));
  std::iota(all.begin(), all.end(), 0);
  Scratch scratch;
  evicted.norms.resize(all.size());
  evicted.dots.resize(all.size());
  kernels::squared_norms(kernels::keys_of(rows), all, evicted.norms, scratch);
  kernels::row_dots(kernels::keys_of(rows), all, input.filter, evicted.dots, scratch);
  evicted.n_nan =
      policy::select(evicted.dots, c.n_keep, {c.n_first, c.n_last}, scratch, evicted.slots);

  cache::Cache cut = cache_of(c);
  cut.copy_kept(original, 0, 0, evicted.slots, nullptr);
  const cache::HeadRows kept = cut.rows(0, 0);
  const size_t bytes = static_cast<size_t>(kept.n * c.head_dim) * cache::element_bytes(c.type);
  evicted.keys.assign(kept.keys, kept.keys + bytes);
  evicted.values.assign(kept.values, kept.values + bytes);
  evicted.positions.assign(kept.positions, kept.positions + kept.n);
  return evicted;
}

TEST(EvictionGolden, EveryInstructionSetGivesTheGoldenHashes) {
  const std::vector<test::EvictionCase> grid = test::eviction_grid();
  const auto golden = test::golden_hashes();
  std::string lines;
  for (size_t i = 0; i < grid.size(); ++i) {
    const test::EvictionInput input = input_of(grid[i]);
    test::EvictionHashes hashes;
    test::for_every_instruction_set([&](const std::string& name) {
      hashes = hashes_of(evict(grid[i], input));
      EXPECT_TRUE(i < golden.size() && hashes == golden[i]) << name << ": " << name_of(grid[i]);
    });
    lines += golden_line(hashes) + "\n";
  }
  EXPECT_EQ(golden.size(), grid.size());
  if (HasFailure()) {
    FAIL() << "tests/support/eviction_golden.inc would be:\n" << lines;
  }
}

}  // namespace
}  // namespace winnow
