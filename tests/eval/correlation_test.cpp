// Correlations of scores and attention against attention that is computed plainly, from what a tiny model is shown to do.

#include "eval/correlation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>

#include "engine/engine.h"
#include "eval/evaluation.h"
#include "eval/rank_correlation.h"
#include "eval/summary.h"
#include "support/filters.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

constexpr int kTokens = 300;

const model::Model& tiny() {
  static const model::Model model(test::write_tiny_model(), {});
  return model;
}

std::string words(const std::string& name, const std::string& sentence, int n) {
  const std::string path = test::temporary_path(name);
  std::ofstream out(path);
  uint32_t state = 1;
  for (int i = 0; i < n; ++i) {
    state = state * 1664525 + 1013904223;
    out << (sentence.empty() ? std::to_string(state >> 8) : sentence) << ' ';
  }
  return path;
}

EvaluationOptions options(const std::string& text) {
  EvaluationOptions made;
  made.tasks = {"correlation"};
  made.policies = make_policies(
      std::vector<std::string>{"streaming", "knorm", "h2o:observed=true", "random", "snapkv"},
      std::vector<std::string>{"100%"});
  made.lengths = {kTokens};
  made.n = 2;
  made.texts = {text};
  made.model.key_type = made.model.value_type = cache::RowType::kF32;
  made.model.engine.n_batch = 64;
  return made;
}

std::vector<Record> measure(const EvaluationOptions& options, const std::string& name) {
  Evaluation evaluation(&tiny(), options);
  Results results(test::temporary_path("correlation_" + name), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  return results.records();
}

const Record& record_of_policy(const std::vector<Record>& records, const std::string& policy) {
  return *std::ranges::find_if(records, [&](const Record& record) {
    return record.index == 0 && record.policy.starts_with(policy);
  });
}

// What each key of each head received, and its squared norm.
struct Head {
  std::vector<double> received = std::vector<double>(kTokens);
  std::vector<double> square = std::vector<double>(kTokens);
};

class Attention final : public kernels::ActivationObserver {
 public:
  std::map<std::pair<int, int>, Head> heads;

  void observe(const kernels::LayerActivations& shown, int thread,
               int /*n_threads*/) noexcept override {
    if (thread != 0) {
      return;
    }
    EXPECT_EQ(shown.n_tokens, kTokens);
    const auto dot = [&](const float* a, const float* b) {
      double sum = 0;
      for (int d = 0; d < shown.shape.head_dim; ++d) {
        sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
      }
      return sum;
    };
    for (int head = 0; head < shown.shape.n_heads; ++head) {
      const int group = shown.shape.n_heads / shown.shape.n_kv_heads;
      const int kv_head = head / group;
      Head& to = heads[{shown.layer, kv_head}];
      for (int i = 0; i < kTokens; ++i) {
        std::vector<double> weights;
        double sum = 0;
        for (int t = 0; t <= i; ++t) {
          weights.push_back(std::exp(dot(shown.query(i, head), shown.key(t, kv_head)) *
                                     static_cast<double>(shown.shape.scale)));
          sum += weights.back();
        }
        for (size_t t = 0; t < weights.size(); ++t) {
          to.received[t] += weights[t] / sum / (kTokens - static_cast<double>(t)) / group;
        }
        to.square[static_cast<size_t>(i)] = dot(shown.key(i, kv_head), shown.key(i, kv_head));
      }
    }
  }
};

TEST(Correlation, IsThatOfAttentionComputedPlainly) {
  const std::string text = words("correlation.txt", "", 400);
  const std::vector<Record> records = measure(options(text), "plain");
  ASSERT_EQ(records.size(), 12);

  const std::vector<TokenText> texts = read_texts(std::vector<std::string>{text}, tiny());
  const TextWindow window = text_window(texts, tiny().vocabulary(), kTokens, 0, 2);
  engine::Engine engine(tiny(), {.n_threads = 1, .n_batch = 512});
  engine::Sequence sequence = test::make_sequence(tiny());
  Attention attention;
  const engine::Feed feed{.sequence = &sequence,
                          .tokens = window.tokens,
                          .logits = engine::WantedLogits::kNone,
                          .observer = &attention};
  engine.feed({&feed, 1}, {.progress = {}});

  std::vector<double> positions(kTokens);
  std::iota(positions.begin(), positions.end(), 0);
  for (const auto& [at, head] : attention.heads) {
    const auto measured = [&, where = at](const std::string& policy) {
      return record_of_policy(records, policy)
          .heads.at(
              "spearman")[static_cast<size_t>(where.first)][static_cast<size_t>(where.second)];
    };
    std::vector<double> low = head.square;
    std::ranges::transform(low, low.begin(), std::negate<>());
    EXPECT_NEAR(measured("streaming"), *spearman(positions, head.received), 1e-3);
    // The same tokens have norms that differ by rounding alone, in ranks of their own.
    EXPECT_NEAR(measured("knorm"), *spearman(low, head.received), 1e-2);
    EXPECT_EQ(measured("full"), 1);
    EXPECT_EQ(
        record_of_policy(records, "streaming")
            .heads.at("partial")[static_cast<size_t>(at.first)][static_cast<size_t>(at.second)],
        0);
    EXPECT_NEAR(measured("h2o"), 1, 1e-6);
    EXPECT_LT(std::abs(measured("random")), 0.25);  // 4 standard deviations of 300 keys
  }
}

TEST(Correlation, SummarizesHeads) {
  const std::vector<Record> records =
      measure(options(words("correlation_more.txt", "", 400)), "summary");
  const Record& full = record_of_policy(records, "full");
  EXPECT_EQ(full.metrics.at("spearman"), 1);
  EXPECT_EQ(full.metrics.at("positive"), 1);
  const Record& streaming = record_of_policy(records, "streaming");
  double sum = 0;
  for (const std::vector<double>& layer : streaming.heads.at("spearman")) {
    sum += std::accumulate(layer.begin(), layer.end(), 0.0) / 4;  // two layers of two heads
  }
  EXPECT_NEAR(streaming.metrics.at("mean"), sum, 1e-12);
  const Summary summary = summarize(records);
  ASSERT_EQ(summary.groups.size(), 6);
  EXPECT_EQ(summary.groups[0].heads.at("spearman").medians, (std::vector<double>{1, 1}));
  EXPECT_TRUE(summary.groups[1].notes.empty());
  for (const Record& record : records) {
    EXPECT_EQ(to_json(record_of(nlohmann::json::parse(to_json(record).dump()))), to_json(record));
  }
}

TEST(Correlation, RefusesTextThatRepeatsItself) {
  EvaluationOptions made =
      options(words("correlation_looped.txt", "The same sentence again and again.", 200));
  for (const Record& record : measure(made, "looped")) {
    EXPECT_NE(record.refused.find("repeats what came before"), std::string::npos);
  }
  made.allow_looped = true;
  const std::vector<Record> records = measure(made, "allowed");
  EXPECT_EQ(records.front().refused, "");
  EXPECT_EQ(records.front().labels.at("looped"), "yes");
}

// Of all experiments on texts.
TEST(OnText, RefusesFiltersThatKnowTheText) {
  const std::string text = words("correlation_known.txt", "", 400);
  const std::vector<TokenText> texts = read_texts(std::vector<std::string>{text}, tiny());
  policy::Filters filters = test::random_filters(test::filter_shape(tiny()));
  const auto refusals = [&](const std::string& name) {
    EvaluationOptions made = options(text);
    made.tasks = {"correlation", "drift", "ppl"};
    made.policies =
        make_policies(std::vector<std::string>{"qfilters:filters=" + test::write_filters(filters)},
                      std::vector<std::string>{"50%"});
    made.lengths = {200};
    made.n = 1;
    made.n_targets = made.n_generated = 8;
    std::vector<std::string> list;
    for (const Record& record : measure(made, name)) {
      if (record.policy != "full") {
        list.push_back(record.refused);
      } else {
        EXPECT_EQ(record.refused, "");
      }
    }
    return list;
  };
  EXPECT_EQ(refusals("unknown"), std::vector<std::string>(3));
  filters.text_hashes = policy::text_stretches(texts[0].tokens);
  for (const std::string& refusal : refusals("known")) {
    EXPECT_NE(refusal.find("calibrated on this text: 100 %"), std::string::npos) << refusal;
  }
  filters.text_hashes.clear();
  filters.fingerprint = "0123456789abcdef";
  for (const std::string& refusal : refusals("foreign")) {
    EXPECT_NE(refusal.find("another model"), std::string::npos) << refusal;
  }
}

}  // namespace
}  // namespace winnow::eval
