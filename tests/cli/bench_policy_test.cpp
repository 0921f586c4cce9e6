// winnow bench policy: what it says about each policy, and what it refuses. Speeds themselves are the machine's.

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/winnow_program.h"
#include "policy/methods.h"
#include "policy/policy.h"

namespace winnow::test {
namespace {

using nlohmann::json;
using policy::Policy;

Outcome bench_policy(const Args& args) {
  return run_winnow(joined({"bench", "policy", "--rows", "300", "--heads", "2", "--head-dim", "20",
                            "-t", "1", "-r", "2"},
                           args));
}

std::vector<json> lines_of(const Args& args) {
  const Outcome outcome = bench_policy(joined(args, {"--json"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::vector<json> lines;
  std::istringstream text(outcome.out);
  for (std::string line; std::getline(text, line);) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

TEST(BenchPolicy, MeasuresEveryMethodUnlessToldWhich) {
  std::vector<std::string> names;
  for (const policy::Method& method : policy::kMethods) {
    if (method.make != nullptr && !method.needs_file) {
      names.push_back(std::string(method.name) + ":budget=100");
    }
  }
  std::vector<std::string> measured;
  for (const json& line : lines_of({"--to", "100"})) {
    measured.push_back(line["policy"]);
  }
  EXPECT_EQ(measured, names);
  const auto lines =
      lines_of({"--policy", "knorm:budget=10%,n_sink=1", "--policy", "streaming:budget=40"});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["budget_rows"], 30);
  EXPECT_EQ(lines[1]["budget_rows"], 40);
}

TEST(BenchPolicy, AWindowOfMoreQueriesThanRowsHasAsManyAsThereAre) {
  EXPECT_EQ(lines_of({"--policy", "snapkv:budget=20,obs_window=4096"}).size(), 1U);
}

// Of rows that arrive in chunks: where budget and slack are used up, and at the end.
int n_evictions(int n_rows, int chunk, const Policy& policy) {
  int n = 0;
  int held = 0;
  for (int first = 0; first < n_rows; first += chunk) {
    held += std::min(chunk, n_rows - first);
    const bool is_last = first + chunk >= n_rows;
    if (held > policy.budget_rows() + (is_last ? 0 : policy.slack())) {
      held = policy.budget_rows();
      ++n;
    }
  }
  return n;
}

TEST(BenchPolicy, HasTheDocumentedFields) {
  for (const json& line : lines_of({"--to", "100", "--chunk", "8"})) {
    SCOPED_TRACE(line["policy"]);
    std::set<std::string> keys;
    for (const auto& [key, value] : line.items()) {
      keys.insert(key);
    }
    EXPECT_EQ(keys, (std::set<std::string>{"policy", "rows", "heads", "head_dim", "row_type",
                                           "budget_rows", "n_threads", "repetitions", "score",
                                           "append", "select", "compact", "one_go_ms", "chunked"}));
    EXPECT_EQ(line["rows"], 300);
    EXPECT_EQ(line["heads"], 2);
    EXPECT_EQ(line["head_dim"], 20);
    EXPECT_EQ(line["row_type"], "f16");
    EXPECT_EQ(line["repetitions"], 2);
    for (const char* phase : {"score", "select", "compact"}) {
      EXPECT_GT(line[phase]["ms"]["min"], 0.0) << phase;
      EXPECT_LE(line[phase]["ms"]["min"], line[phase]["ms"]["median"]) << phase;
    }
    EXPECT_GT(line["select"]["ns_per_score"], 0.0);
    EXPECT_EQ(line["compact"]["moved_bytes"], 100 * 2 * 2 * 20 * 2);
    EXPECT_GT(line["one_go_ms"]["median"], 0.0);
    EXPECT_EQ(line["chunked"]["chunk"], 8);
    const Policy policy = Policy::parse(line["policy"].get<std::string>());
    EXPECT_EQ(line["chunked"]["evictions"], n_evictions(300, 8, policy));
    const bool reads = line["score"]["read_bytes"] > 0.0;
    EXPECT_EQ(line["score"]["of_read"].is_null(), !reads);
  }
}

TEST(BenchPolicy, WhatScoresAreMadeOfIsWhatIsReadBesideThem) {
  const auto read_bytes = [](const std::string& spec) {
    return lines_of({"--policy", spec + ":budget=100"}).at(0)["score"]["read_bytes"].get<double>();
  };
  EXPECT_EQ(read_bytes("knorm"), 2 * 300 * 4);
  EXPECT_EQ(read_bytes("keydiff"), 2 * 300 * (4 + 20 * 2));
  EXPECT_EQ(read_bytes("lagkv"), 2 * 300 * (2 * 20 * 2));
  EXPECT_EQ(read_bytes("streaming"), 0);
}

TEST(BenchPolicy, SlackMakesFewerEvictions) {
  const auto lines = lines_of({"--chunk", "8", "--policy", "knorm:budget=100,slack=50"});
  EXPECT_EQ(lines.at(0)["chunked"]["evictions"], 4);  // of 152, 152 and 152 rows, and at the end
}

TEST(BenchPolicy, PrintsATable) {
  const Outcome outcome = bench_policy({"--policy", "knorm", "--to", "64"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
  EXPECT_NE(outcome.out.find("| knorm:budget=64 |"), std::string::npos);
}

TEST(BenchPolicy, RefusesWhatItCannotMeasure) {
  expect_refused(bench_policy({"--to", "300"}), 2, {"300 rows", "nothing to measure"});
  expect_refused(bench_policy({"--policy", "full"}), 2, {"full"});
  expect_refused(bench_policy({"--policy", "knrom"}), 2, {"knrom", "knorm"});
  expect_refused(bench_policy({"--type", "q8"}), 2, {"q8", "f16"});
  expect_refused(bench_policy({"--to", "-1"}), 2, {"-1"});
  expect_refused(bench_policy({"--polcy", "knorm"}), 2,
                 {"--polcy", "--policy", "winnow bench policy --help"});
  expect_refused(run_winnow({"bench"}), 2, {"--model is required"});
}

}  // namespace
}  // namespace winnow::test
