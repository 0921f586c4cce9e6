// What calibrating says beside filters: moments of queries for expected-attention, and how well projections predict attention.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "calibrate/calibrate.h"
#include "support/error_of.h"
#include "support/filters.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow::calibrate {
namespace {

using model::Model;
using testing::HasSubstr;

eval::TokenText text_of(const Model& model, int n, uint32_t seed) {
  return {.name = "text" + std::to_string(seed),
          .tokens = test::random_tokens(n, model.hyper().n_vocab, seed)};
}

Calibration calibrated(const Model& model, const std::vector<eval::TokenText>& texts,
                       const Options& options) {
  return calibrate(model, texts, options, {}, nullptr);
}

std::vector<int32_t> prompt_of(const Model& model, std::span<const int32_t> text) {
  std::vector<int32_t> tokens(text.begin(), text.end());
  if (model.vocabulary().adds_bos()) {
    tokens.insert(tokens.begin(), model.vocabulary().bos());
  }
  return tokens;
}

// Queries before rotation [n_layers * n_heads], without those of the first positions.
class LaterQueries final : public kernels::ActivationObserver {
 public:
  explicit LaterQueries(const model::Hyperparameters& hyper)
      : rows(static_cast<size_t>(hyper.n_layers * hyper.n_heads)) {}

  std::vector<std::vector<std::vector<float>>> rows;

  void observe(const kernels::LayerActivations& shown, int thread, int /*n*/) noexcept override {
    const size_t n_rot = shown.rotation->n_rot();
    std::vector<float> turns(static_cast<size_t>(shown.n_tokens) * n_rot);
    if (thread != 0) {
      return;
    }
    kernels::activation_turns(shown, turns);
    for (int token = 0; token < shown.n_tokens; ++token) {
      for (int head = 0; head < shown.shape.n_heads; ++head) {
        if (shown.first_pos + token >= kernels::kUncountedQueries) {
          std::vector<float> row(static_cast<size_t>(shown.shape.head_dim));
          kernels::before_rotation(
              *shown.rotation, std::span(turns).subspan(static_cast<size_t>(token) * n_rot, n_rot),
              shown.query(token, head), row);
          rows[static_cast<size_t>(shown.layer * shown.shape.n_heads + head)].push_back(row);
        }
      }
    }
  }
};

TEST(Statistics, AreMeanAndCovarianceBeforeRotation) {
  for (const char* const architecture : {"llama", "qwen2", "qwen3"}) {
    const Model model(test::write_tiny_model({.architecture = architecture}), {});
    const std::vector<eval::TokenText> texts{text_of(model, 120, 1), text_of(model, 90, 2)};
    const Calibration found =
        calibrated(model, texts, {.n_passage = 130, .keeps_query_moments = true});
    ASSERT_EQ(found.n_passages, 2);
    LaterQueries queries(model.hyper());
    engine::Engine engine(model, {});
    for (const eval::TokenText& text : texts) {
      engine::Sequence sequence =  // as calibrating keeps its rows
          test::make_sequence(model, "full", 8192, cache::RowType::kF16);
      const std::vector<int32_t> tokens = prompt_of(model, text.tokens);
      const engine::Feed feed{.sequence = &sequence, .tokens = tokens, .observer = &queries};
      engine.feed({&feed, 1}, {.progress = {}});
    }
    const auto dim = static_cast<size_t>(model.hyper().head_dim);
    for (size_t head = 0; head < queries.rows.size(); ++head) {
      const auto& rows = queries.rows[head];
      const auto n = static_cast<double>(rows.size());
      std::vector<double> mean(dim);
      for (const auto& row : rows) {
        for (size_t a = 0; a < dim; ++a) {
          mean[a] += static_cast<double>(row[a]) / n;
        }
      }
      for (size_t a = 0; a < dim; ++a) {
        ASSERT_NEAR(found.query_means[head * dim + a], mean[a], 1e-4) << architecture;
        for (size_t b = 0; b < dim; ++b) {
          double covariance = 0;
          for (const auto& row : rows) {
            covariance += (static_cast<double>(row[a]) - mean[a]) *
                          (static_cast<double>(row[b]) - mean[b]) / n;
          }
          ASSERT_NEAR(found.query_covariances[(head * dim + a) * dim + b], covariance, 1e-3);
        }
      }
    }
  }
}

// The same moments from a file choose the same rows.
TEST(Statistics, TakeThePlaceOfTheTextsOwnQueries) {
  const Model model(test::write_tiny_model(), {});
  engine::Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
  engine::Sequence own = test::make_sequence(model, "expected-attention:budget=40");
  test::feed_all(engine, own, tokens);

  policy::Filters filters = test::random_filters(test::filter_shape(model));
  const auto dim = static_cast<size_t>(model.hyper().head_dim);
  std::vector<double> mean(dim);
  std::vector<double> covariance(dim * dim);
  for (int layer = 0; layer < model.hyper().n_layers; ++layer) {
    for (int head = 0; head < model.hyper().n_heads; ++head) {
      own.moments.mean(layer, head, mean);
      own.moments.covariance(layer, head, covariance);
      filters.query_means.insert(filters.query_means.end(), mean.begin(), mean.end());
      filters.query_covariances.insert(filters.query_covariances.end(), covariance.begin(),
                                       covariance.end());
    }
  }
  const std::string spec = "expected-attention:budget=40,stats=" + test::write_filters(filters);
  EXPECT_FALSE(policy::Policy::parse(spec).needs().query_moments);
  engine::Sequence calibrated = test::make_sequence(model, spec);
  test::feed_all(engine, calibrated, tokens);
  EXPECT_EQ(test::kept_positions(calibrated.cache), test::kept_positions(own.cache));
  // And others choose others.
  std::ranges::reverse(filters.query_means);
  engine::Sequence other = test::make_sequence(
      model, "expected-attention:budget=40,stats=" + test::write_filters(filters));
  test::feed_all(engine, other, tokens);
  EXPECT_NE(test::kept_positions(other.cache), test::kept_positions(own.cache));
}

TEST(Statistics, AreOfOneModelAndMustBeThere) {
  const Model model(test::write_tiny_model(), {});
  const Model other(test::write_tiny_model({.seed = 2}), {});
  const Calibration found =
      calibrated(model, {text_of(model, 200, 1)}, {.keeps_query_moments = true});
  const std::string with = test::temporary_path("with-moments.npz");
  const std::string without = test::temporary_path("without-moments.npz");
  write_file_atomically(with, format_with_query_moments(found));
  write_file_atomically(without, format_calibration(found));
  const std::string spec = "expected-attention:budget=20,stats=";
  const policy::Policy policy = policy::Policy::parse(spec + with);
  EXPECT_THAT(policy.spec(), HasSubstr("stats_digest="));
  EXPECT_EQ(policy::Policy::parse(policy.spec()).spec(), policy.spec());
  const auto refusal = [](const std::string& text) {
    return test::error_of(ErrorCode::kInvalidArgument, [&] { policy::Policy::parse(text); });
  };
  EXPECT_THAT(refusal(spec + without), HasSubstr("no mean and covariance of queries"));
  EXPECT_THAT(refusal(spec + "/no/such"), HasSubstr("/no/such"));
  EXPECT_THAT(refusal(spec + with + ",stats_digest=0123"), HasSubstr("has another content"));
  EXPECT_THAT(refusal("expected-attention:budget=20,stats_digest=0123"),
              HasSubstr("there is no stats=FILE"));
  EXPECT_THAT(test::error_of(ErrorCode::kInvalidArgument,
                             [&] {
                               engine::Engine engine(other, {});
                               engine::Sequence sequence = test::make_sequence(other, spec + with);
                               test::feed_all(engine, sequence, test::random_tokens(60, 100));
                             }),
              HasSubstr("made from another model"));
}

// Spearman's correlation by counting.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& x) {
    std::vector<double> rank;
    for (const double each : x) {
      double below = 0;
      for (const double other : x) {
        below += other < each ? 1 : other == each ? 0.5 : 0;
      }
      rank.push_back(below - 0.5 * static_cast<double>(x.size()));  // their mean is 0
    }
    return rank;
  };
  const std::vector<double> ra = ranks(a);
  const std::vector<double> rb = ranks(b);
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += ra[i] * rb[i];
    aa += ra[i] * ra[i];
    bb += rb[i] * rb[i];
  }
  return ab / std::sqrt(aa * bb);
}

TEST(Statistics, CorrelationIsOfProjectionsWithTheAttentionThatKeysReceive) {
  const Model model(test::write_tiny_model(), {});
  const std::vector<eval::TokenText> texts{text_of(model, 150, 1), text_of(model, 130, 2)};
  const Calibration found = calibrated(model, texts, {.n_passage = 200});
  const policy::Filters& filters = found.fit.filters;
  // Of two passages the second is the middle one.
  engine::Engine engine(model, {});
  const std::vector<int32_t> tokens = prompt_of(model, texts[1].tokens);
  policy::Policy full = policy::Policy::full({.column_mass = true});
  engine::Sequence sequence(
      engine::cache_shape(model.hyper(), cache::RowType::kF16, cache::RowType::kF16, full, 400),
      full);
  test::feed_all(engine, sequence, tokens);
  const int group = model.hyper().n_heads / model.hyper().n_kv_heads;
  for (int layer = 0; layer < model.hyper().n_layers; ++layer) {
    for (int kv_head = 0; kv_head < model.hyper().n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = sequence.cache.rows(layer, kv_head);
      const kernels::ScoreDirections directions =
          policy::score_directions(filters, filters.is_guarded);
      std::vector<float> scores(static_cast<size_t>(rows.n));
      Scratch scratch;
      kernels::project_keys(rows, directions, layer, kv_head, nullptr, scratch, scores);
      std::vector<double> projections;
      std::vector<double> attention;
      for (int slot = 0; slot < rows.n; ++slot) {
        projections.push_back(scores[static_cast<size_t>(slot)]);
        attention.push_back(static_cast<double>(rows.mass[slot]) / (rows.n - slot) / group);
      }
      const size_t head = static_cast<size_t>(layer * model.hyper().n_kv_heads + kv_head);
      EXPECT_NEAR(filters.correlation[head], rank_correlation(projections, attention), 1e-5);
    }
  }
  EXPECT_TRUE(calibrated(model, texts, {.n_checked = 0}).fit.filters.correlation.empty());
}

}  // namespace
}  // namespace winnow::calibrate
