// What six policies cost on a real model, within bounds that were measured: a change that hurts quality is seen.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "eval/evaluation.h"
#include "eval/haystack.h"
#include "eval/summary.h"
#include "support/models.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

// Sentences of noise, each once with every one of some openings.
std::string write_prose() {
  const std::string path = test::temporary_path("quality.txt");
  std::ofstream out(path);
  PythonRandom random(7);
  std::vector<std::string> sentences;
  for (const char* opening : {"It was said that ", "Nobody denied that ", "The clerk wrote that ",
                              "In spring one heard that ", "At the market they told us that ",
                              "We had not known before that ", "My uncle liked to repeat that ",
                              "It is still remembered how "}) {
    for (std::string sentence : bland_sentences()) {
      sentence.front() = static_cast<char>(std::tolower(sentence.front()));
      sentences.push_back(opening + sentence);
    }
  }
  random.shuffle(sentences);
  for (const std::string& sentence : sentences) {
    out << sentence << "\n";
  }
  return path;
}

TEST(Quality, KlToTheFullCacheStaysWhereItWas) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  const model::Model model(path, {});
  struct Bound {
    const char* policy;
    double kl;  // as measured
  };
  // In nats: 768 tokens of context cut to a quarter, 256 scored. The text says everything several times over, so what any
  // row is worth is to be found again; on prose the order of the methods is another (docs/experiments/evaluation.md). A
  // change of the text changes them all, a change of one method its own.
  constexpr Bound kBounds[] = {{"random", 0.618}, {"streaming", 0.800},
                               {"knorm", 0.967},  {"keydiff", 0.687},
                               {"snapkv", 1.046}, {"expected-attention", 0.837}};
  EvaluationOptions options;
  options.tasks = {"ppl"};
  std::vector<std::string> specs;
  for (const Bound& bound : kBounds) {
    specs.emplace_back(bound.policy);
  }
  options.policies = make_policies(specs, std::vector<std::string>{"25%"});
  options.lengths = {768};
  options.n = 1;
  options.n_targets = 256;
  options.texts = {write_prose()};
  Evaluation evaluation(&model, options);
  Results results(test::temporary_path("quality"), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  ASSERT_EQ(results.records().size(), 1 + std::size(kBounds));
  for (size_t i = 0; i < std::size(kBounds); ++i) {
    const Record& record = results.records()[i + 1];
    ASSERT_EQ(record.refused, "");
    EXPECT_NEAR(record.metrics.at("kl"), kBounds[i].kl, 0.1 * kBounds[i].kl) << record.policy;
  }
}

}  // namespace
}  // namespace winnow::eval
