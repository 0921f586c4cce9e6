// A cache whose rows lie elsewhere keeps account of them, and says what becomes of them.

#include "cache/remote_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace winnow {
namespace {

// Notes what it is asked for.
struct Rows final : cache::RemoteRows {
  struct Head {
    int n_slots = 0;
    std::vector<int> kept = {};
  };

  void grow(int layer, int kv_head, int n_slots, int n_more) override {
    heads[{layer, kv_head}].n_slots = n_slots + n_more;
  }
  void keep(int layer, int kv_head, std::span<const int> slots, int n_slots) override {
    EXPECT_EQ(n_slots, heads.at({layer, kv_head}).n_slots);
    heads[{layer, kv_head}].kept.assign(slots.begin(), slots.end());
  }
  cache::Cache::AppendCounts counts(int layer, int kv_head) const override {
    return {.saturated = layer * 10 + kv_head};
  }
  size_t committed_bytes() const override { return size_t{1} << 30; }
  void copy_beside(cache::RemoteRows& /*source*/) override {}
  void copy_kept(cache::RemoteRows& source, int layer, int kv_head,
                 std::span<const int> slots) override {
    copied_from = &source;
    heads[{layer, kv_head}].kept.assign(slots.begin(), slots.end());
  }

  const cache::RemoteRows* copied_from = nullptr;
  std::map<std::pair<int, int>, Head> heads;
};

constexpr int kHeads = 2;

cache::CacheShape shape() {
  return {.n_layers = 2,
          .n_kv_heads = kHeads,
          .head_dim = 64,
          .max_rows = 500,
          .stores_scores = true,
          .is_remote = true};
}

void append(cache::Cache& cache, int layer, int kv_head, int first_pos, int n) {
  const cache::Cache::Target target = cache.reserve(layer, kv_head, n);
  EXPECT_EQ(target.keys, nullptr);
  EXPECT_EQ(target.values, nullptr);
  EXPECT_EQ(target.scores, nullptr);
  std::iota(target.positions, target.positions + n, first_pos);
  if (target.rotations != nullptr) {
    std::iota(target.rotations, target.rotations + n, first_pos);
  }
  cache.commit(layer, kv_head, n, {});
}

TEST(RemoteRows, AreKeptAccountOf) {
  const auto rows = std::make_shared<Rows>();
  cache::Cache cache(shape(), rows);
  for (int layer = 0; layer < 2; ++layer) {
    for (int kv_head = 0; kv_head < kHeads; ++kv_head) {
      append(cache, layer, kv_head, 0, 300);
      append(cache, layer, kv_head, 300, 1);
    }
  }
  EXPECT_EQ((rows->heads[{1, 1}].n_slots), 301);
  EXPECT_EQ(cache.rows(1, 1).n, 301);
  EXPECT_EQ(cache.rows(1, 1).keys, nullptr);
  EXPECT_EQ(cache.rows(1, 1).scores, nullptr);

  const std::vector<int> slots{0, 7, 250, 300};
  cache.keep(1, 1, slots);
  EXPECT_EQ((rows->heads[{1, 1}].kept), slots);
  EXPECT_TRUE((rows->heads[{1, 0}].kept.empty()));
  EXPECT_EQ(cache.positions(1, 1), (std::vector<int32_t>{0, 7, 250, 300}));
  EXPECT_EQ(cache.rows_evicted(), 297);
  EXPECT_EQ(cache.now_bytes(), (3 * 301 + 4) * cache.shape().row_bytes());
}

// On the host a few evicted rows would stay in their slots.
TEST(RemoteRows, FewEvictedRowsGoAtOnce) {
  const auto rows = std::make_shared<Rows>();
  cache::Cache cache(shape(), rows);
  append(cache, 0, 0, 0, 20);
  cache.keep(0, 0, std::vector<int>{3, 4, 5});
  EXPECT_EQ((rows->heads[{0, 0}].kept), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(cache.rows(0, 0).n, 3);
  EXPECT_EQ(cache.rows(0, 0).n_visible(), 3);
}

// Where the device has moved rows by itself, the books are what they would be had it been asked to.
TEST(RemoteRows, BooksFollowTheDevice) {
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 200; ++repeat) {
    cache::CacheShape with_rotations = shape();
    with_rotations.stores_rotations = repeat % 2 == 1;
    with_rotations.stores_output_norms = repeat % 3 == 1;
    const int n = 1 + static_cast<int>(random() % 300);
    std::vector<int> kept(static_cast<size_t>(n));
    std::iota(kept.begin(), kept.end(), 0);
    std::vector<int> lost;
    const uint32_t share = 1 + random() % 8;
    std::erase_if(kept, [&](int slot) {
      const bool goes = random() % share == 0;
      if (goes) {
        lost.push_back(slot);
      }
      return goes;
    });
    std::vector<std::unique_ptr<cache::Cache>> caches;
    for (int way = 0; way < 3; ++way) {
      caches.push_back(std::make_unique<cache::Cache>(with_rotations, std::make_shared<Rows>()));
      append(*caches.back(), 1, 1, 5, n);
    }
    caches[0]->keep(1, 1, kept);
    caches[1]->follow(1, 1, kept, /*are_lost=*/false);
    caches[2]->follow(1, 1, lost, /*are_lost=*/true);
    for (const auto& cache : caches) {
      EXPECT_EQ(cache->positions(1, 1), caches[0]->positions(1, 1));
      EXPECT_EQ(cache->rows_evicted(), std::ssize(lost));
      EXPECT_EQ(cache->now_bytes(), caches[0]->now_bytes());
      EXPECT_EQ(cache->trim_bounds().intact, caches[0]->trim_bounds().intact);
      EXPECT_EQ(cache->trim_bounds().settled, caches[0]->trim_bounds().settled);
      const cache::HeadRows rows = cache->rows(1, 1);
      for (int slot = 0; rows.rotations != nullptr && slot < rows.n; ++slot) {
        EXPECT_EQ(rows.rotations[slot], rows.positions[slot]);
      }
    }
  }
}

TEST(RemoteRows, AreCopiedByTheDevice) {
  const auto rows = std::make_shared<Rows>();
  cache::Cache source(shape(), rows);
  append(source, 0, 1, 0, 20);
  const auto of_copy = std::make_shared<Rows>();
  cache::Cache copy(shape(), of_copy);
  copy.copy_kept(source, 0, 1, std::vector<int>{2, 19}, nullptr);
  EXPECT_EQ(of_copy->copied_from, rows.get());
  EXPECT_EQ((of_copy->heads[{0, 1}].kept), (std::vector<int>{2, 19}));
  EXPECT_EQ(copy.positions(0, 1), (std::vector<int32_t>{2, 19}));
}

TEST(RemoteRows, TakeNoMemoryOfTheHostButForPositions) {
  cache::CacheShape of_host = shape();
  of_host.is_remote = false;
  EXPECT_LT(shape().reserved_bytes(), of_host.reserved_bytes() / 10);
  const cache::Cache cache(shape(), std::make_shared<Rows>());
  EXPECT_GE(cache.committed_bytes(), size_t{1} << 30);
  EXPECT_EQ(cache.append_counts().saturated, 0 + 1 + 10 + 11);
}

}  // namespace
}  // namespace winnow
