// Anisotropy of a tiny model's queries against sums that are written down plainly.

#include "eval/anisotropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "engine/engine.h"
#include "eval/evaluation.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

constexpr int kPassage = 2048;
constexpr size_t kDim = 16;

const model::Model& tiny() {
  static const model::Model model(test::write_tiny_model(), {});
  return model;
}

const std::string& text() {
  static const std::string path = [] {
    std::string made = test::temporary_path("anisotropy.txt");
    std::ofstream out(made);
    uint32_t state = 5;
    for (int i = 0; i < 3000; ++i) {
      state = state * 1664525 + 1013904223;
      out << (state >> 8) << ' ';
    }
    return made;
  }();
  return path;
}

EvaluationOptions options(const std::string& task, int n) {
  EvaluationOptions made;
  made.tasks = {task};
  made.policies = make_policies(std::vector<std::string>{"knorm"}, std::vector<std::string>{"9"});
  made.lengths = {kPassage, 50};
  made.n = n;
  made.texts = {text()};
  return made;
}

std::vector<Record> measure(const EvaluationOptions& options, const std::string& name) {
  Evaluation evaluation(&tiny(), options);
  Results results(test::temporary_path("anisotropy_" + name), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  return results.records();
}

// The queries of layer 1, head 2, but for the first four.
class Recorder final : public kernels::ActivationObserver {
 public:
  explicit Recorder(bool is_before_rotation) : is_before_rotation_(is_before_rotation) {}
  std::vector<std::vector<float>> queries;

  void observe(const kernels::LayerActivations& shown, int thread,
               int /*n_threads*/) noexcept override {
    if (thread != 0 || shown.layer != 1) {
      return;
    }
    std::vector<float> turns(static_cast<size_t>(shown.n_tokens) * shown.rotation->n_rot());
    kernels::activation_turns(shown, turns);
    for (int token = 0; token < shown.n_tokens; ++token) {
      if (shown.first_pos + token < 4) {
        continue;
      }
      std::vector<float> query(shown.query(token, 2), shown.query(token, 2) + kDim);
      if (is_before_rotation_) {
        kernels::before_rotation(
            *shown.rotation,
            std::span(turns).subspan(static_cast<size_t>(token) * shown.rotation->n_rot(),
                                     shown.rotation->n_rot()),
            shown.query(token, 2), query);
      }
      queries.push_back(query);
    }
  }

 private:
  bool is_before_rotation_;
};

std::vector<std::vector<float>> queries_of(int index, bool is_before_rotation) {
  const std::vector<TokenText> texts = read_texts(std::vector<std::string>{text()}, tiny());
  const TextWindow window = text_window(texts, tiny().vocabulary(), kPassage, index, 2);
  engine::Engine engine(tiny(), {.n_threads = 1, .n_batch = 512});
  engine::Sequence sequence = test::make_sequence(tiny());
  Recorder recorder(is_before_rotation);
  const engine::Feed feed{.sequence = &sequence,
                          .tokens = window.tokens,
                          .logits = engine::WantedLogits::kNone,
                          .observer = &recorder};
  engine.feed({&feed, 1}, {.progress = {}});
  return recorder.queries;
}

double dot(const std::vector<double>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// By power iteration, to the side of the mean.
std::vector<double> first_axis(const std::vector<std::vector<float>>& rows) {
  std::vector<double> axis(kDim, 1.0);
  for (int step = 0; step < 500; ++step) {
    std::vector<double> image(kDim, 0.0);
    for (const std::vector<float>& row : rows) {
      const double projection = dot(axis, row);
      for (size_t d = 0; d < kDim; ++d) {
        image[d] += projection * static_cast<double>(row[d]);
      }
    }
    const double norm =
        std::sqrt(std::inner_product(image.begin(), image.end(), image.begin(), 0.0));
    std::ranges::transform(image, axis.begin(), [&](double element) { return element / norm; });
  }
  double sum = 0;
  for (const std::vector<float>& row : rows) {
    sum += dot(axis, row);
  }
  for (double& element : axis) {
    element = sum < 0 ? -element : element;
  }
  return axis;
}

TEST(Anisotropy, IsThatOfHeldOutQueries) {
  for (const bool is_before_rotation : {false, true}) {
    const std::string task = is_before_rotation ? "anisotropy-pre" : "anisotropy";
    const std::vector<Record> records = measure(options(task, 2), task);
    ASSERT_EQ(records.size(), 4);  // two lengths, two windows; policies have no say
    const std::vector<double> axis = first_axis(queries_of(0, is_before_rotation));
    double kappa = 0;
    const std::vector<std::vector<float>> held_out = queries_of(1, is_before_rotation);
    for (const std::vector<float>& query : held_out) {
      kappa += dot(axis, query) / static_cast<double>(held_out.size());
    }
    const Record& first = records[0];
    EXPECT_EQ(first.refused, "");
    EXPECT_NEAR(first.heads.at("kappa")[1][2], kappa, 1e-4 + 1e-3 * std::abs(kappa));
    EXPECT_LE(first.heads.at("kappa_low")[1][2], kappa + 1e-3);
    EXPECT_GE(first.heads.at("kappa_high")[1][2], kappa - 1e-3);
    for (const Record& record : records) {
      EXPECT_EQ(record.metrics.at("positive.noise") > 0.2, true);
      EXPECT_LT(record.metrics.at("positive.noise"), 0.8);
      EXPECT_GT(record.metrics.at("ratio_of_abs.in_sample"), 1);
      EXPECT_LE(record.metrics.at("certain"), record.metrics.at("positive"));
    }
    EXPECT_EQ(first.metrics.at("positive.in_sample"), 1);
  }
}

TEST(Anisotropy, HoldsATextOut) {
  for (const Record& record : measure(options("anisotropy", 1), "alone")) {
    EXPECT_NE(record.refused.find("-n 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace winnow::eval
