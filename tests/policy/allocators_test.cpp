// What every allocator promises, under every scorer: exact sums, floors, one strict order, whatever the shape.
#include "policy/allocators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "kernels/parallel.h"
#include "policy/methods.h"
#include "policy/order.h"
#include "policy/policy.h"
#include "policy/tiny_layer.h"
#include "support/filters.h"

namespace winnow::policy {
namespace {

constexpr const char* kStacks[] = {"",      "+adakv", "+pyramid", "+pyramid+adakv",
                                   "+pool", "+cake",  "+squeeze", "+cake+adakv"};

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int operator()(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }

 private:
  std::mt19937 random_;
};

struct Shape {
  std::vector<std::vector<TinyHead>> heads;  // [n_layers, n_kv_heads]
  bool is_even = false;                      // all heads have the same number of rows
};

// Norms that are all different, or tied in many ways.
TinyHead draw_head(Draw& draw, int n, bool has_ties, bool has_hidden) {
  std::vector<float> norms;
  for (int i = 0; i < n; ++i) {
    norms.push_back(static_cast<float>(has_ties ? draw(0, 4) : draw(0, 1 << 23)));
  }
  TinyHead head = TinyHead::with_norms(norms);
  if (has_hidden) {
    for (int i = 0; i < n; ++i) {
      head.hidden.push_back(draw(0, 3) == 0 ? 1 : 0);
    }
  }
  return head;
}

Shape draw_shape(Draw& draw) {
  Shape shape;
  const int n_layers = draw(1, 6);
  const int n_kv_heads = draw(1, 4);
  const int n = draw(1, 60);
  shape.is_even = draw(0, 1) == 0;
  const bool has_ties = draw(0, 1) == 0;
  const bool has_hidden = !shape.is_even && draw(0, 1) == 0;
  for (int layer = 0; layer < n_layers; ++layer) {
    std::vector<TinyHead>& heads = shape.heads.emplace_back();
    for (int head = 0; head < n_kv_heads; ++head) {
      heads.push_back(draw_head(draw, shape.is_even ? n : draw(1, n), has_ties, has_hidden));
    }
  }
  return shape;
}

// The layers of a shape, as policies see them.
class TinyCache {
 public:
  explicit TinyCache(const Shape& shape) {
    for (const std::vector<TinyHead>& heads : shape.heads) {
      layers_.push_back(std::make_unique<TinyLayer>(heads, static_cast<int>(layers_.size())));
      views_.push_back(layers_.back()->view());
    }
  }

  const std::vector<LayerView>& views() const { return views_; }
  std::vector<int> n_visible() const {
    std::vector<int> n;
    for (const LayerView& view : views_) {
      for (const cache::HeadRows& rows : view.heads) {
        n.push_back(rows.n_visible());
      }
    }
    return n;
  }
  // Empty where nothing is cut.
  KeptSlots kept_by(const Policy& policy, int n_threads = 1) const {
    kernels::ParallelFor parallel(n_threads);
    Choice choice;
    return policy.choose(views_, parallel, choice) ? choice.kept : KeptSlots{};
  }

 private:
  std::vector<std::unique_ptr<TinyLayer>> layers_;
  std::vector<LayerView> views_;
};

struct Trial {
  Shape shape;
  int budget;
  int n_least;
  std::string options;
};

Trial draw_trial(Draw& draw) {
  const int n_sink = draw(0, 3);
  const int n_recent = draw(0, 4);
  const int budget = draw(n_sink + n_recent + 1, 40);
  return {.shape = draw_shape(draw),
          .budget = budget,
          .n_least = n_sink + n_recent + 1,
          .options = ":budget=" + std::to_string(budget) + ",n_sink=" + std::to_string(n_sink) +
                     ",n_recent=" + std::to_string(n_recent)};
}

int64_t total(const std::vector<int>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

void expect_promises(const Trial& trial, const Policy& policy) {
  const TinyCache cache(trial.shape);
  const std::vector<int> n_visible = cache.n_visible();
  const KeptSlots kept = cache.kept_by(policy);
  const int64_t whole_budget = int64_t{trial.budget} * std::ssize(n_visible);
  if (*std::max_element(n_visible.begin(), n_visible.end()) <= trial.budget ||
      (policy.sharing() == Sharing::kAll && total(n_visible) <= whole_budget)) {
    ASSERT_EQ(kept, KeptSlots{});
    return;
  }
  if (kept.empty()) {  // with heads of a layer sharing, none of the layers is over its budget
    ASSERT_EQ(policy.sharing(), Sharing::kLayer);
    return;
  }
  int64_t n_kept = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    const size_t n_kv_heads = trial.shape.heads[0].size();
    const cache::HeadRows& rows = cache.views()[i / n_kv_heads].heads[i % n_kv_heads];
    ASSERT_LE(std::ssize(kept[i]), n_visible[i]);
    ASSERT_GE(std::ssize(kept[i]), std::min(n_visible[i], trial.n_least));
    ASSERT_LE(std::ssize(kept[i]), policy.most_rows(static_cast<int>(trial.shape.heads.size()),
                                                    static_cast<int>(n_kv_heads)));
    ASSERT_TRUE(std::is_sorted(kept[i].begin(), kept[i].end(), std::less_equal<>()));
    for (const int slot : kept[i]) {
      ASSERT_TRUE(rows.hidden == nullptr || rows.hidden[slot] == 0);
    }
    n_kept += std::ssize(kept[i]);
  }
  if (trial.shape.is_even || policy.sharing() == Sharing::kAll) {
    ASSERT_EQ(n_kept, std::min(whole_budget, total(n_visible)));
  }
  ASSERT_EQ(cache.kept_by(policy, 2), kept);
}

TEST(Allocators, SumsAreExactAndFloorsHoldForAnyShape) {
  Draw draw(11);
  for (int i = 0; i < 150 && !HasFatalFailure(); ++i) {
    const Trial trial = draw_trial(draw);
    for (const Method& method : kMethods) {
      for (const char* const stack : kStacks) {
        if (method.make != nullptr) {
          const std::string spec =
              std::string(method.name) + stack + trial.options +
              test::own_options(method, {.n_layers = 8,
                                         .n_heads = 8,
                                         .n_kv_heads = 8,
                                         .head_dim = trial.shape.heads[0][0].head_dim});
          SCOPED_TRACE(spec + ", trial " + std::to_string(i));
          expect_promises(trial, Policy::parse(spec));
        }
      }
    }
  }
}

// --- pooling against a sort

struct Row {
  size_t head;
  int slot;
  float score;
  bool is_guaranteed;
};

// n_rows of a group of heads: the guaranteed ones, then the others in the strict order.
KeptSlots sorted_choice(const std::vector<TinyHead>& heads, int64_t n_rows, int n_sink,
                        int n_recent, int n_floor) {
  std::vector<Row> rows;
  for (size_t head = 0; head < heads.size(); ++head) {
    std::vector<Row> own;
    for (int slot = 0; slot < std::ssize(heads[head].positions); ++slot) {
      if (heads[head].hidden.empty() || heads[head].hidden[static_cast<size_t>(slot)] == 0) {
        own.push_back({head, slot, -heads[head].norms[static_cast<size_t>(slot)], false});
      }
    }
    int n_best = std::max(n_sink + n_recent + 1, n_floor);
    const auto n_own = static_cast<int>(own.size());
    int n_first = 0;
    while (n_first < n_own && own[static_cast<size_t>(n_first)].slot < n_sink) {
      ++n_first;
    }
    for (int i = 0; i < n_own; ++i) {
      if (i < n_first || i >= n_own - std::min(n_recent, n_own - n_first)) {
        own[static_cast<size_t>(i)].is_guaranteed = true;
        --n_best;
      }
    }
    std::stable_sort(own.begin(), own.end(),
                     [](const Row& a, const Row& b) { return a.score > b.score; });
    for (Row& row : own) {
      if (!row.is_guaranteed && n_best > 0) {
        row.is_guaranteed = true;
        --n_best;
      }
    }
    std::sort(own.begin(), own.end(), [](const Row& a, const Row& b) { return a.slot < b.slot; });
    rows.insert(rows.end(), own.begin(), own.end());
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.is_guaranteed != b.is_guaranteed ? a.is_guaranteed : a.score > b.score;
  });
  rows.resize(static_cast<size_t>(std::min<int64_t>(n_rows, std::ssize(rows))));
  KeptSlots kept(heads.size());
  for (const Row& row : rows) {
    kept[row.head].push_back(row.slot);
  }
  for (std::vector<int>& slots : kept) {
    std::sort(slots.begin(), slots.end());
  }
  return kept;
}

TEST(Allocators, PoolingKeepsWhatASortKeeps) {
  Draw draw(12);
  for (int i = 0; i < 2000; ++i) {
    const Trial trial = draw_trial(draw);
    const int n_percent = draw(0, 4) * 25;
    const std::string options =
        trial.options + ",budget_floor=" + std::to_string(n_percent / 100.0).substr(0, 4);
    const Policy adakv = Policy::parse("knorm+adakv" + options);
    const Policy pool = Policy::parse("knorm+pool" + options);
    const int n_sink = adakv.options().n_sink;
    const int n_recent = adakv.options().n_recent;

    std::vector<TinyHead> all;
    for (size_t layer = 0; layer < trial.shape.heads.size(); ++layer) {
      const std::vector<TinyHead>& heads = trial.shape.heads[layer];
      all.insert(all.end(), heads.begin(), heads.end());
      const auto n_rows = std::min<int64_t>(int64_t{trial.budget} * std::ssize(heads),
                                            total(TinyCache({.heads = {heads}}).n_visible()));
      const auto n_floor = static_cast<int>(n_rows / std::ssize(heads) * n_percent / 100);
      const KeptSlots kept = TinyLayer(heads).kept_by(adakv);
      if (!kept.empty()) {
        ASSERT_EQ(kept, sorted_choice(heads, n_rows, n_sink, n_recent, n_floor))
            << adakv.spec() << ", trial " << i;
      }
    }
    const KeptSlots kept = TinyCache(trial.shape).kept_by(pool);
    if (!kept.empty()) {
      const int n_floor = trial.budget * n_percent / 100;
      ASSERT_EQ(kept, sorted_choice(all, int64_t{trial.budget} * std::ssize(all), n_sink, n_recent,
                                    n_floor))
          << pool.spec() << ", trial " << i;
    }
  }
}

TEST(Allocators, ALayerAtATimeKeepsWhatAllTogetherKeep) {
  Draw draw(13);
  for (int i = 0; i < 300; ++i) {
    const Trial trial = draw_trial(draw);
    const TinyCache cache(trial.shape);
    for (const char* const stack : {"", "+adakv", "+pyramid", "+pyramid+adakv"}) {
      const Policy policy = Policy::parse(std::string("knorm") + stack + trial.options);
      const KeptSlots together = cache.kept_by(policy);
      if (together.empty()) {
        continue;
      }
      const size_t n_kv_heads = trial.shape.heads[0].size();
      Division division;
      policy.divide(cache.n_visible(), static_cast<int>(n_kv_heads), division);
      kernels::ParallelFor parallel(1);
      for (size_t layer = 0; layer < trial.shape.heads.size(); ++layer) {
        Choice choice;
        if (policy.choose(std::span(cache.views()).subspan(layer, 1),
                          std::span(division.rows).subspan(layer, 1), parallel, choice)) {
          const auto first = together.begin() + static_cast<std::ptrdiff_t>(layer * n_kv_heads);
          ASSERT_EQ(choice.kept, KeptSlots(first, first + static_cast<std::ptrdiff_t>(n_kv_heads)))
              << policy.spec() << ", trial " << i;
        }
      }
    }
  }
}

TEST(Allocators, PermutingHeadsPermutesTheChoice) {
  Draw draw(14);
  for (const char* const stack : kStacks) {
    const Policy policy =
        Policy::parse(std::string("knorm") + stack + ":budget=9,n_sink=1,n_recent=2");
    Shape shape;
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<TinyHead>& heads = shape.heads.emplace_back();
      for (int head = 0; head < 3; ++head) {
        heads.push_back(draw_head(draw, 30, false, false));
      }
    }
    const KeptSlots kept = TinyCache(shape).kept_by(policy);
    for (std::vector<TinyHead>& heads : shape.heads) {
      std::rotate(heads.begin(), heads.begin() + 1, heads.end());
    }
    const KeptSlots rotated = TinyCache(shape).kept_by(policy);
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(rotated[i / 3 * 3 + (i % 3 + 2) % 3], kept[i]) << policy.spec();
    }
  }
}

TEST(Allocators, AFloorOfEverythingAndEqualHeadsAreUniform) {
  Draw draw(15);
  const TinyHead head = draw_head(draw, 40, false, false);
  const TinyLayer equal({head, head, head});
  const TinyLayer different({draw_head(draw, 40, true, false), draw_head(draw, 40, true, false)});
  const Policy uniform = Policy::parse("knorm:budget=12,n_sink=2");
  EXPECT_EQ(equal.kept_by(Policy::parse("knorm+adakv:budget=12,n_sink=2")), equal.kept_by(uniform));
  EXPECT_EQ(different.kept_by(Policy::parse("knorm+adakv:budget=12,n_sink=2,budget_floor=1")),
            different.kept_by(uniform));
  EXPECT_NE(different.kept_by(Policy::parse("knorm+adakv:budget=12,n_sink=2,budget_floor=0")),
            KeptSlots{});
}

TEST(Allocators, EveryNameIsFoundAndDefaultsAreAllowed) {
  for (const AllocatorPart& part : kAllocators) {
    EXPECT_EQ(find_allocator(part.name), &part);
    EXPECT_TRUE(part.divides_layers || part.divides_heads || part.make_rows != nullptr);
    EXPECT_EQ((part.make_layers != nullptr) + (part.make_heads != nullptr) +
                  (part.make_both != nullptr) + (part.make_rows != nullptr),
              1);
    std::string options;
    for (const OptionDescription& option : describe_options(part)) {
      EXPECT_FALSE(option.help.empty());
      if (!option.default_value.empty()) {
        options += "," + option.name + "=" + option.default_value;
      }
    }
    if (part.make_both != nullptr) {  // needs a file
      continue;
    }
    const std::string parts = "knorm+" + std::string(part.name);
    EXPECT_EQ(Policy::parse(parts + ":budget=9" + options).spec(),
              (part.name == "uniform" ? "knorm" : parts) + ":budget=9" +
                  (part.implied.empty() ? "" : "," + std::string(part.implied)));
  }
}

}  // namespace
}  // namespace winnow::policy
