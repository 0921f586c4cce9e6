// Whole evaluations on a tiny model: what they measure is what a session gives, however they are cut up.

#include "eval/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>

#include "eval/answers.h"
#include "eval/tasks.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

using test::error_of;

const model::Model& tiny() {
  static const model::Model model(test::write_tiny_model(), {});
  return model;
}

EvaluationOptions options(const std::vector<std::string>& tasks) {
  EvaluationOptions made;
  made.tasks = tasks;
  // Of every kind of need that a prompt can leave behind.
  made.policies =
      make_policies(std::vector<std::string>{"knorm", "snapkv+cake:obs_window=8", "h2o+adakv",
                                             "expected-attention+criticalkv", "keydiff+squeeze",
                                             "tova", "streaming:positions=contiguous"},
                    std::vector<std::string>{"25%", "60"});
  made.questions = parse_question_modes("both");
  made.lengths = {700};
  made.n = 3;
  made.model.engine.n_batch = 64;
  return made;
}

constexpr size_t kArms = 1 + 2 * 2 * 7;  // of options(), in both modes

std::string folder(const std::string& name) {
  return test::temporary_path("evaluation_" + name);
}

// The results without what differs from run to run.
std::multiset<std::string> run(const EvaluationOptions& options, const std::string& name,
                               const std::atomic<bool>* cancel = nullptr) {
  Evaluation evaluation(&tiny(), options);
  Results results(folder(name), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, cancel);
  std::multiset<std::string> lines;
  for (Record record : results.records()) {
    record.prefill_ms = record.compress_ms = record.answer_ms = 0;
    lines.insert(to_json(record).dump());
  }
  return lines;
}

std::string prose(const std::string& name, int n_words) {
  const std::string path = test::temporary_path(name);
  std::ofstream out(path);
  uint32_t state = 1;
  for (int i = 0; i < n_words; ++i) {
    state = state * 1664525 + 1013904223;
    out << static_cast<char>('a' + (state >> 13) % 26)
        << static_cast<char>('a' + (state >> 21) % 26)
        << static_cast<char>('a' + (state >> 27) % 26) << (i % 11 == 10 ? ".\n" : " ");
  }
  return path;
}

TEST(Evaluation, ArmsAnswerAsASessionOfTheirPolicyDoes) {
  const EvaluationOptions made = options({"niah"});
  Evaluation evaluation(&tiny(), made);
  Results results(folder("session"), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  ASSERT_EQ(results.records().size(), 3 * kArms);
  const auto task = parse_task("niah").task;
  for (const Record& record : results.records()) {
    const Prompt prompt =
        make_prompt(*task, {.n_tokens = 700, .index = record.index, .seed = 0}, tiny(), made.model);
    engine::SessionOptions session_options;
    session_options.evict = record.question == "agnostic" ? engine::EvictWhen::kBeforeQuestion
                                                          : engine::EvictWhen::kAfterPrompt;
    engine::Session session(tiny(), policy::Policy::parse(record.policy), session_options);
    engine::PromptTokens whole = prompt.document;
    whole.question = prompt.questions[0].question;
    whole.after = prompt.questions[0].after;
    session.read(whole, {});
    const std::string which = record.policy + " " + record.question;
    for (size_t layer = 0; layer < record.kept_rows.size(); ++layer) {
      for (size_t head = 0; head < record.kept_rows[layer].size(); ++head) {
        ASSERT_EQ(
            record.kept_rows[layer][head],
            session.sequence()->cache.n_cached(static_cast<int>(layer), static_cast<int>(head)))
            << which;
      }
    }
    const engine::Generation answer = session.generate(
        {.n_predict = prompt.sample.n_answer_tokens, .sampling = {.temperature = 0}}, {});
    // Bytes that are no character are marked in the results.
    const nlohmann::json text = answer.text;
    const std::string kept = text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    ASSERT_EQ(nlohmann::json(record.answers).dump(), "[" + kept + "]") << which;
    EXPECT_EQ(record.policy_bytes, static_cast<int64_t>(session.sequence()->policy_bytes()))
        << which;
    EXPECT_EQ(record.rows_evicted, session.sequence()->cache.rows_evicted()) << which;
    EXPECT_EQ(record.refused, "");
    EXPECT_TRUE(record.is_within_budget) << which;
    EXPECT_TRUE(record.are_positions_true) << which;
    EXPECT_NEAR(record.n_prompt, 700, 35);
  }
}

TEST(Evaluation, SaysWhatAttentionPaysToRolesAndWhatIsKeptOfThem) {
  EvaluationOptions made = options({"schema:format=compact"});
  made.policies = make_policies(
      std::vector<std::string>{"h2o+roles:ban=key,n_sink=0,n_recent=0", "random:n_recent=0"},
      std::vector<std::string>{"50%"});
  made.is_by_role = true;
  made.n = 2;
  Evaluation evaluation(&tiny(), made);
  Results results(folder("by_role"), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  ASSERT_EQ(results.records().size(), 2 * (1 + 2 * 2));
  for (const Record& record : results.records()) {
    ASSERT_EQ(record.refused, "");
    if (record.policy == "full") {
      EXPECT_LT(record.metrics.at("mass_error"), 1e-5);
      EXPECT_GT(record.metrics.at("mass.KEY"), 0);
      EXPECT_EQ(record.heads.at("key_value").size(), tiny().hyper().n_layers);
    } else if (record.policy.starts_with("random")) {
      EXPECT_NEAR(record.metrics.at("kept.KEY"), 0.5, 0.1);
      EXPECT_NEAR(record.metrics.at("kept.VALUE"), 0.5, 0.1);
    } else {
      EXPECT_EQ(record.metrics.at("kept.KEY"), 0);
      EXPECT_GT(record.metrics.at("kept.VALUE"), 0.5);
    }
  }
}

TEST(Evaluation, GoesOnWhereItStopped) {
  const EvaluationOptions made = options({"niah"});
  const auto unbroken = run(made, "unbroken");
  EXPECT_EQ(unbroken.size(), 3 * kArms);
  // Stopped after every fifth record, again and again; each time a line is left half written.
  for (int n_runs = 0;; ++n_runs) {
    Evaluation evaluation(&tiny(), made);
    std::atomic<bool> cancel{false};
    bool is_done = true;
    try {
      Results results(folder("broken"), evaluation.config());
      int n_new = 0;
      evaluation.run(
          results, [&](const EvaluationProgress&) { cancel = ++n_new >= 5; }, &cancel);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kCancelled);
      is_done = false;
    }
    if (is_done) {
      EXPECT_GT(n_runs, 5);
      break;
    }
    std::ofstream(folder("broken") + "/samples.jsonl", std::ios::app) << "{\"task\":\"ni";
    ASSERT_LT(n_runs, 100);
  }
  EXPECT_EQ(run(made, "broken"), unbroken);
}

TEST(Evaluation, ShardsMakeUpTheWhole) {
  EvaluationOptions made = options({"niah", "niah:keys=2"});
  made.policies = make_policies(std::vector<std::string>{"knorm"}, std::vector<std::string>{"60"});
  const auto whole = run(made, "whole");
  std::multiset<std::string> parts;
  for (int i = 1; i <= 4; ++i) {
    made.shard = {i, 4};
    parts.merge(run(made, "shard" + std::to_string(i)));
  }
  EXPECT_EQ(parts, whole);
}

TEST(Evaluation, WhatThePromptRefusesIsARecord) {
  EvaluationOptions made = options({"niah"});
  made.lengths = {700, 5000};  // the model has 4096
  made.policies =
      make_policies(std::vector<std::string>{"knorm:budget=600,n_sink=4,protect=both"}, {});
  made.n = 1;
  Evaluation evaluation(&tiny(), made);
  Results results(folder("refused"), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  ASSERT_EQ(results.records().size(), 6);
  int n_refused = 0;
  for (const Record& record : results.records()) {
    n_refused += record.refused.empty() ? 0 : 1;
    EXPECT_EQ(record.refused.empty(), record.n_tokens == 700) << record.refused;
  }
  EXPECT_EQ(n_refused, 3);
}

TEST(Evaluation, RefusesRolesOfExperimentsWithoutDocuments) {
  EvaluationOptions made = options({"perturbation"});
  made.is_by_role = true;
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { Evaluation(&tiny(), made); })
                .find("--by-role is about the documents of tasks"),
            std::string::npos);
}

TEST(Evaluation, RefusesWhatItCannotDo) {
  const auto error_with = [](const EvaluationOptions& made) {
    return error_of(ErrorCode::kInvalidArgument, [&] { const Evaluation refused(&tiny(), made); });
  };
  EvaluationOptions made = options({"nih"});
  EXPECT_NE(error_with(made).find("niah"), std::string::npos);
  made = options({"niah", "niah"});
  EXPECT_NE(error_with(made).find("twice"), std::string::npos);
  made = options({"ppl"});
  EXPECT_NE(error_with(made).find("-f"), std::string::npos);
  made = options({});
  error_with(made);
  made = options({"niah"});
  made.n = 0;
  error_with(made);
  made = options({"niah"});
  made.lengths = {0};
  error_with(made);
}

TEST(Ppl, TheFullCacheAgreesWithItselfAndOthersNearlyDo) {
  EvaluationOptions made = options({"ppl"});
  made.texts = {prose("ppl.txt", 600)};
  made.lengths = {300};
  made.n = 2;
  for (const int n_targets : {0, 70}) {
    made.n_targets = n_targets;
    Evaluation evaluation(&tiny(), made);
    Results results(folder("ppl" + std::to_string(n_targets)), evaluation.config());
    evaluation.run(
        results, [](const EvaluationProgress&) {}, nullptr);
    ASSERT_EQ(results.records().size(), 2 * (1 + 2 * 7));
    for (const Record& record : results.records()) {
      EXPECT_EQ(record.refused, "");
      EXPECT_EQ(record.metrics.at("n_scored"), n_targets == 0 ? 299 : 70);
      EXPECT_TRUE(record.is_within_budget) << record.policy;
      EXPECT_TRUE(record.are_positions_true) << record.policy;
      if (record.policy == "full") {
        EXPECT_NEAR(record.metrics.at("kl"), 0, 1e-12);
        EXPECT_EQ(record.metrics.at("top1"), 1);
        EXPECT_NEAR(record.metrics.at("delta_ll"), 0, 1e-12);
      } else {
        EXPECT_GT(record.metrics.at("kl"), 0) << record.policy;
        EXPECT_GT(record.rows_evicted, 0) << record.policy;
      }
    }
  }
}

// Likelihoods of the full cache are those of one feed with all logits.
TEST(Ppl, IsTheLikelihoodOfTheText) {
  EvaluationOptions made = options({"ppl"});
  made.policies = make_policies({}, {});
  made.texts = {prose("likelihood.txt", 300)};
  made.lengths = {200};
  made.n = 1;
  made.n_targets = 100;
  Evaluation evaluation(&tiny(), made);
  Results results(folder("likelihood"), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  const auto texts = read_texts(made.texts, tiny());
  const TextWindow window = text_window(texts, tiny().vocabulary(), 301, 0, 1);
  engine::Session session(tiny(), policy::Policy::parse("full"), {});
  const std::vector<float> logits =
      session.read({.document = window.tokens}, {.logits = engine::WantedLogits::kAll});
  const auto n_vocab = static_cast<size_t>(tiny().hyper().n_vocab);
  double nll = 0;
  for (size_t i = 200; i < 300; ++i) {
    const auto row = std::span(logits).subspan(i * n_vocab, n_vocab);
    double sum = 0;
    for (const float logit : row) {
      sum += std::exp(static_cast<double>(logit));
    }
    nll += std::log(sum) - static_cast<double>(row[static_cast<size_t>(window.tokens[i + 1])]);
  }
  EXPECT_NEAR(results.records()[0].metrics.at("nll"), nll / 100, 1e-9);
}

TEST(Drift, TheFullCacheWritesWhatASessionWrites) {
  EvaluationOptions made = options({"drift"});
  made.texts = {prose("drift.txt", 200)};
  made.lengths = {200};
  made.n = 1;
  made.n_generated = 60;
  Evaluation evaluation(&tiny(), made);
  Results results(folder("drift"), evaluation.config());
  evaluation.run(
      results, [](const EvaluationProgress&) {}, nullptr);
  ASSERT_EQ(results.records().size(), 1 + 2 * 7);
  const TextWindow window =
      text_window(read_texts(made.texts, tiny()), tiny().vocabulary(), 200, 0, 1);
  for (const Record& record : results.records()) {
    EXPECT_EQ(record.refused, "");
    EXPECT_EQ(record.n_generated, 60);
    EXPECT_TRUE(record.is_within_budget) << record.policy;
    EXPECT_TRUE(record.are_positions_true) << record.policy;
    EXPECT_DOUBLE_EQ(record.metrics.at("score"), 1 - record.metrics.at("looped"));
    if (record.policy == "full") {
      EXPECT_NEAR(record.metrics.at("kl"), 0, 1e-9);
      EXPECT_EQ(record.metrics.at("agreement"), 1);
    } else {
      EXPECT_GT(record.metrics.at("kl_end"), 0) << record.policy;
    }
    // The same policy in a session. Wide steps may change last bits, so only the first tokens must agree.
    engine::Session session(tiny(), policy::Policy::parse(record.policy), {});
    session.read({.document = window.tokens}, {});
    const nlohmann::json start =
        session.generate({.n_predict = 3, .ignore_eos = true, .sampling = {.temperature = 0}}, {})
            .text;
    const std::string expected =
        start.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    EXPECT_EQ(nlohmann::json(record.answers[0]).dump().substr(0, expected.size() - 1),
              expected.substr(0, expected.size() - 1))
        << record.policy;
  }
}

TEST(OnText, ARepeatedTextIsRefusedOrLabelled) {
  const std::string path = test::temporary_path("looped.txt");
  std::ofstream out(path);
  for (int i = 0; i < 30; ++i) {
    out << "the same sentence stands here again and again and again, as if it were new. ";
  }
  out.close();
  for (const std::string task : {"ppl", "drift"}) {
    EvaluationOptions made = options({task});
    made.texts = {path};
    made.policies = make_policies({}, {});
    made.lengths = {300};
    made.n = 1;
    made.n_generated = 4;
    for (const bool is_allowed : {false, true}) {
      made.allow_looped = is_allowed;
      Evaluation evaluation(&tiny(), made);
      Results results(folder(task + (is_allowed ? "_looped" : "_unlooped")), evaluation.config());
      evaluation.run(
          results, [](const EvaluationProgress&) {}, nullptr);
      const Record& record = results.records().at(0);
      EXPECT_EQ(record.refused.empty(), is_allowed) << task;
      EXPECT_EQ(record.labels.contains("looped"), is_allowed) << task;
    }
  }
}

}  // namespace
}  // namespace winnow::eval
