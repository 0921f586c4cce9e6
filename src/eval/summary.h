// What records come to: means with intervals, differences to the full cache, and what must not be believed.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/record.h"
#include "eval/statistics.h"

namespace winnow::eval {

struct Mean {
  double value = 0;
  Interval interval;  // 95 %, by bootstrap over samples
};

// A comparison on the samples that both arms have.
struct Difference {
  Comparison comparison;
  double p_holm = 1;    // corrected for all arms of the task and length
  std::string verdict;  // in words
};

// One value of every head, over the samples of a group.
struct HeadSummary {
  HeadValues means;
  // [n_layers] of these; a layer without heads has NaN.
  std::vector<double> medians;
  std::vector<double> positive;  // shares above 0
};

// All records of an arm at one task and length.
struct Group {
  std::string task;
  int n_tokens = 0;
  std::string question;
  std::string policy;

  int n = 0;                            // samples
  std::map<std::string, Mean> metrics;  // "ppl" among them where likelihoods were measured
  std::map<std::string, HeadSummary> heads;
  std::optional<Difference> to_full;  // of the primary metric; none for the full cache itself
  std::optional<Difference> to_baseline;
  double kept_fraction = 0;  // of the full cache's bytes
  double kv_bytes = 0;       // means
  double kv_peak_bytes = 0;
  double policy_bytes = 0;
  int64_t rows_evicted = 0;  // sums
  int64_t nan_scores = 0;
  double compress_ms = 0;  // medians
  double answer_ms = 0;
  std::vector<std::string> refused;  // reasons, each once
  std::vector<std::string> notes;    // "suspicious: ...", "not a comparison: ..."
};

struct Summary {
  std::vector<Group> groups;          // in the order in which the records came
  std::vector<std::string> problems;  // lines of samples.jsonl that could not be read
};

// `baseline`: a policy's canonical spec that the others are compared with too; may be empty. Throws invalid_argument, with the
// policies there are, where it is none of them.
Summary summarize(std::span<const Record> records, std::string_view baseline = {});

nlohmann::ordered_json to_json(const Summary& summary);

}  // namespace winnow::eval
