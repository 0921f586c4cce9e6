// Policies see in a case what they see in the engine: rows and queries taken from a model's cache give the same choice.

#include "engine/case.h"

#include <gtest/gtest.h>

#include "model/families.h"
#include "support/generate.h"
#include "support/models.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Case;
using engine::Engine;
using engine::Sequence;
using model::Model;

// Keys, values and queries of a sequence that holds all its rows as f32 and remembers all its queries.
Case case_of(const Sequence& sequence, const Model& model) {
  const cache::CacheShape& shape = sequence.cache.shape();
  Case all{.n_layers = shape.n_layers,
           .n_kv_heads = shape.n_kv_heads,
           .n_rows = sequence.positions_fed,
           .head_dim = shape.head_dim,
           .n_heads = model.hyper().n_heads,
           .n_queries = sequence.positions_fed,
           .keys = {},
           .values = {},
           .queries = {},
           .positions = sequence.cache.positions(0, 0),
           .scale = model::attention_scale(model.family(), model.hyper())};
  const auto add = [](const void* from, size_t n, std::vector<float>& to) {
    to.insert(to.end(), static_cast<const float*>(from), static_cast<const float*>(from) + n);
  };
  const auto n = static_cast<size_t>(all.n_rows) * static_cast<size_t>(all.head_dim);
  for (int layer = 0; layer < all.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < all.n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = sequence.cache.rows(layer, kv_head);
      EXPECT_EQ(rows.n, all.n_rows);
      add(rows.keys, n, all.keys);
      add(rows.values, n, all.values);
    }
    for (int head = 0; head < all.n_heads; ++head) {
      for (int pos = 0; pos < all.n_queries; ++pos) {
        add(sequence.queries.query(layer, head, pos), static_cast<size_t>(all.head_dim),
            all.queries);
      }
    }
  }
  return all;
}

std::vector<std::vector<int>> kept_of(const Case& given, const engine::CaseResult& result) {
  const auto n = static_cast<size_t>(given.n_rows);
  std::vector<std::vector<int>> kept(result.n_kept.size());
  for (size_t i = 0; i < result.kept.size(); ++i) {
    if (result.kept[i] != 0) {
      kept[i / n].push_back(given.positions[i % n]);
    }
  }
  return kept;
}

void expect_same_choice(const Model& model, std::span<const int32_t> tokens,
                        const std::vector<std::string>& methods) {
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  Sequence whole = test::make_sequence(model, "snapkv:budget=4096,obs_window=4096");
  test::feed_all(engine, whole, tokens);
  const Case given = case_of(whole, model);
  for (const std::string& method : methods) {
    const std::string spec = method + ":budget=30%,n_recent=3";
    policy::Policy policy = policy::Policy::parse(spec);
    const engine::CaseResult result = engine::score_case(given, policy, 2);
    Sequence cut = test::make_sequence(
        model, method + ":n_recent=3,budget=" + std::to_string(result.budget_rows));
    test::feed_all(engine, cut, tokens);
    EXPECT_EQ(kept_of(given, result), test::kept_positions(cut.cache)) << spec;
  }
}

// In each family, queries are those that attention was computed with, whatever norms and matrices they come from: the mass
// that a case has of them is the mass that attention left.
TEST(Case, PoliciesKeepTheRowsThatTheyKeepInTheEngine) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "phi3"}) {
    SCOPED_TRACE(architecture);
    const Model model(
        test::write_tiny_model(
            {.architecture = architecture, .n_layers = 3, .n_heads = 6, .n_kv_heads = 3}),
        {});
    expect_same_choice(model, test::random_tokens(400, model.hyper().n_vocab),
                       {"h2o", "keydiff", "knorm", "lagkv", "quest", "random", "snapkv",
                        "streaming", "tova", "knorm+adakv", "h2o+pool", "snapkv+pyramid+adakv"});
  }
}

TEST(Case, PoliciesKeepTheRowsThatTheyKeepOfARealModel) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  const Model model(path, {});
  expect_same_choice(model, test::prose_tokens(model, 100), {"h2o", "snapkv+adakv"});
}

}  // namespace
}  // namespace winnow
