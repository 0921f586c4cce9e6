// Calibrating tiny models: the same filters however text is cut and read, and after an interruption.

#include "calibrate/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow::calibrate {
namespace {

using model::Model;
using policy::FilterFrame;
using testing::HasSubstr;

std::vector<eval::TokenText> texts(const Model& model, const std::vector<int>& lengths) {
  std::vector<eval::TokenText> all;
  for (const int n : lengths) {
    const auto seed = static_cast<uint32_t>(all.size()) + 1;
    all.push_back({.name = "text" + std::to_string(seed),
                   .tokens = test::random_tokens(n, model.hyper().n_vocab, seed)});
  }
  return all;
}

Calibration run(const Model& model, const std::vector<eval::TokenText>& texts,
                const Options& options) {
  return calibrate(model, texts, options, {}, nullptr);
}

// All queries of a passage [n_layers][n_heads] rows, before rotation or after it.
class Recorder final : public kernels::ActivationObserver {
 public:
  Recorder(const model::Hyperparameters& hyper, bool is_before)
      : n_heads_(static_cast<size_t>(hyper.n_heads)),
        is_before_(is_before),
        queries(static_cast<size_t>(hyper.n_layers) * n_heads_) {}

 private:
  size_t n_heads_;
  bool is_before_;

 public:
  std::vector<std::vector<float>> queries;

  void observe(const kernels::LayerActivations& shown, int thread, int /*n*/) noexcept override {
    if (thread != 0) {
      return;
    }
    const size_t n_rot = shown.rotation->n_rot();
    std::vector<float> turns(static_cast<size_t>(shown.n_tokens) * n_rot);
    kernels::activation_turns(shown, turns);
    std::vector<float> row(static_cast<size_t>(shown.shape.head_dim));
    for (int token = 0; token < shown.n_tokens; ++token) {
      for (size_t head = 0; head < n_heads_; ++head) {
        const float* const q = shown.query(token, static_cast<int>(head));
        std::copy_n(q, row.size(), row.begin());
        if (is_before_) {
          kernels::before_rotation(
              *shown.rotation, std::span(turns).subspan(static_cast<size_t>(token) * n_rot, n_rot),
              q, row);
        }
        std::vector<float>& to = queries[static_cast<size_t>(shown.layer) * n_heads_ + head];
        to.insert(to.end(), row.begin(), row.end());
      }
    }
  }
};

class CalibrateFrame : public testing::TestWithParam<FilterFrame> {};

// Text read at once, by hand, in an array of queries: the same directions.
TEST_P(CalibrateFrame, IsThatOfTheQueriesThatAttentionTakes) {
  for (const char* const architecture : {"llama", "qwen2", "qwen3", "phi3", "gemma3"}) {
    const Model model(test::write_tiny_model({.architecture = architecture}), {});
    const auto text = texts(model, {300, 200});
    const Options options{.frame = GetParam(), .n_passage = 301};
    const Calibration found = run(model, text, options);
    EXPECT_EQ(found.n_passages, 2);

    const bool is_before = GetParam() != FilterFrame::kPost;
    Recorder recorder(model.hyper(), is_before);
    engine::Engine engine(model, {});
    for (const eval::TokenText& each : text) {
      std::vector<int32_t> tokens = each.tokens;
      if (model.vocabulary().adds_bos()) {
        tokens.insert(tokens.begin(), model.vocabulary().bos());
      }
      engine::Sequence sequence = test::make_sequence(model, "full", 8192, cache::RowType::kF16);
      const engine::Feed feed{.sequence = &sequence, .tokens = tokens, .observer = &recorder};
      engine.feed({&feed, 1}, {.progress = {}});
    }
    std::vector<float> queries;
    for (const std::vector<float>& head : recorder.queries) {
      queries.insert(queries.end(), head.begin(), head.end());
    }
    const Calibration plain = calibrate(queries, found.fit.filters.shape, options);
    ASSERT_EQ(plain.n_tokens, found.n_tokens);
    for (size_t i = 0; i < plain.fit.filters.directions.size(); ++i) {
      ASSERT_NEAR(plain.fit.filters.directions[i], found.fit.filters.directions[i], 1e-6)
          << architecture;
    }
    EXPECT_EQ(found.fit.filters.fingerprint, model.fingerprint());
  }
}

INSTANTIATE_TEST_SUITE_P(Frames, CalibrateFrame,
                         testing::Values(FilterFrame::kPost, FilterFrame::kPre,
                                         FilterFrame::kLegacy),
                         [](const auto& frame) {
                           return std::string(policy::filter_frame_name(frame.param));
                         });

TEST(Calibrate, DoesNotDependOnChunksAndThreads) {
  const Model model(test::write_tiny_model(), {});
  const auto text = texts(model, {500, 333});
  const std::string whole = format_calibration(run(model, text, {.n_passage = 128}));
  EXPECT_EQ(format_calibration(
                run(model, text, {.n_passage = 128, .engine = {.n_threads = 2, .n_batch = 48}})),
            whole);
}

TEST(Calibrate, GoesOnWhereItWasInterrupted) {
  const Model model(test::write_tiny_model(), {});
  const auto text = texts(model, {400, 400});
  Options options{.n_passage = 100, .keeps_query_moments = true};
  const std::string whole = format_with_query_moments(run(model, text, options));
  options.checkpoint = test::temporary_path("calibration.part");
  options.checkpoint_ms = 0;  // after every passage
  std::atomic<bool> cancel = false;
  EXPECT_THROW(
      calibrate(
          model, text, options, [&](double fraction) { cancel = fraction > 0.4; }, &cancel),
      Error);
  ASSERT_TRUE(std::filesystem::exists(options.checkpoint));
  Options other = options;
  other.n_passage = 50;
  EXPECT_THROW(run(model, text, other), Error);
  const Model rotated_otherwise(test::write_tiny_model(), {.rope = {.freq_base = 500.0F}});
  EXPECT_THROW(run(rotated_otherwise, text, options), Error) << "its queries are others";
  const Calibration rest = run(model, text, options);
  EXPECT_GT(rest.n_resumed, 0);
  EXPECT_LT(rest.n_resumed, rest.n_passages);
  EXPECT_EQ(format_with_query_moments(rest), whole);
  EXPECT_FALSE(std::filesystem::exists(options.checkpoint));
}

TEST(Calibrate, RefusesTooLittleText) {
  const Model model(test::write_tiny_model(), {});
  const auto refusal = [&](const std::vector<int>& lengths) -> std::string {
    try {
      run(model, texts(model, lengths), {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({}), HasSubstr("no tokens"));
  EXPECT_THAT(refusal({0, 1, 0}), HasSubstr("no tokens"));
  EXPECT_THAT(refusal({20}), HasSubstr("too few"));
  EXPECT_EQ(refusal({40}), "");
}

// What a policy is given is only ever used on the model it was made of.
TEST(Calibrate, FiltersAreOfOneModel) {
  const Model model(test::write_tiny_model(), {});
  const Model other(test::write_tiny_model({.seed = 2}), {});
  const Model wider(test::write_tiny_model({.n_heads = 8, .n_kv_heads = 4}), {});
  const std::string path = test::temporary_path("of-one-model.npz");
  write_file_atomically(path, format_calibration(run(model, texts(model, {200}), {})));
  const auto refusal = [&](const Model& on) -> std::string {
    engine::Engine engine(on, {});
    engine::Sequence sequence = test::make_sequence(on, "qfilters:budget=20,filters=" + path);
    try {
      test::feed_all(engine, sequence, test::random_tokens(60, on.hyper().n_vocab));
    } catch (const Error& error) {
      return error.what();
    }
    EXPECT_EQ(sequence.cache.n_cached(0, 0), 20);
    return "";
  };
  EXPECT_EQ(refusal(model), "");
  EXPECT_THAT(refusal(other), HasSubstr("made from another model"));
  EXPECT_THAT(refusal(wider), HasSubstr("2 layers with 2 KV heads"));
}

}  // namespace
}  // namespace winnow::calibrate
