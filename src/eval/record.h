// What one sample under one arm came to: a line of samples.jsonl (docs/evaluation.md).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace winnow::eval {

// What no two records of a run share: task, length, index, question, policy.
using RecordKey = std::tuple<std::string, int, int, std::string, std::string>;

// [n_layers][heads]: of every query head or KV head; a layer that was not measured has none.
using HeadValues = std::vector<std::vector<double>>;

struct Record {
  // Which sample, which arm.
  std::string task;      // as it was asked for: "niah:keys=4"
  int n_tokens = 0;      // the length that was asked for
  int index = 0;         // of the sample
  std::string question;  // question_mode_name()
  std::string policy;    // its canonical spec, with the budget

  // Why there is no result: a budget that does not work out, a prompt that is too long. Empty otherwise; all that follows
  // is meaningless where it is not.
  std::string refused;

  // What was read and written.
  std::string id;
  std::map<std::string, std::string> labels;
  std::string prompt_hash;  // of the tokens
  int n_prompt = 0;         // tokens, the first question's
  int n_document = 0;
  std::vector<std::string> answers;  // one for each question
  int n_generated = 0;

  std::map<std::string, double> metrics;  // the mean over the questions, or over the positions

  std::map<std::string, HeadValues> heads =
      {};  // what was measured of each head, where that is asked

  // What was kept once the prompt was read and cut (of several questions: the first); of drift, and of ppl without targets, at
  // the end.
  int budget_rows = 0;                      // per KV head, on average; 0: none
  std::vector<std::vector<int>> kept_rows;  // [n_layers, n_kv_heads]
  int64_t rows_evicted = 0;                 // of all heads, at the end
  int64_t nan_scores = 0;
  bool evicted_during_prompt = false;
  int64_t kv_bytes = 0;
  int64_t kv_peak_bytes = 0;  // of the arm's own cache, from its fork on
  int64_t kv_full_bytes = 0;  // what the full cache holds at the same point
  int64_t policy_bytes = 0;

  // Verified at the end: what is held does not exceed the budget and its slack; every position was fed once, and kept
  // positions ascend.
  bool is_within_budget = true;
  bool are_positions_true = true;

  // Not part of the result: they differ from run to run.
  double prefill_ms = 0;   // of the prompt that all arms share
  double compress_ms = 0;  // of the fork that is cut
  double answer_ms = 0;

  RecordKey key() const { return {task, n_tokens, index, question, policy}; }
};

// What arms are compared by: the first of these that was measured.
inline constexpr const char* kPrimaryMetrics[] = {"nll", "score", "perturbation", "spearman",
                                                  "kappa"};
// Of metrics by name; null where none was.
template <typename Value>
const char* primary_metric(const std::map<std::string, Value>& metrics) {
  for (const char* const name : kPrimaryMetrics) {
    if (metrics.contains(name)) {
      return name;
    }
  }
  return nullptr;
}

nlohmann::ordered_json to_json(const Record& record);
// Throws bad_data, naming the key that is missing or of another type.
Record record_of(const nlohmann::json& json);

}  // namespace winnow::eval
