// winnow bench: what is measured, in which order, and what is said about it. Speeds themselves are the machine's.

#include <filesystem>
#include <set>
#include <sstream>

#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

// Short tests on the tiny model.
Args bench(const Args& args) {
  const bool has_repetitions = std::find(args.begin(), args.end(), "-r") != args.end();
  return joined(joined({"bench", "-m", tiny_model(), "-t", "1"}, args),
                has_repetitions ? Args{} : Args{"-r", "2"});
}

// The runs of JSON lines.
std::vector<json> runs_of(const Args& args) {
  const Outcome outcome = run_winnow(joined(bench(args), {"--json"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::vector<json> runs;
  std::istringstream lines(outcome.out);
  std::string line;
  while (std::getline(lines, line)) {
    runs.push_back(json::parse(line));
  }
  return runs;
}

std::vector<std::string> texts(const std::vector<json>& runs, const char* key) {
  std::vector<std::string> all;
  for (const json& run : runs) {
    all.push_back(run[key].is_string() ? run[key].get<std::string>() : run[key].dump());
  }
  return all;
}

using Texts = std::vector<std::string>;

void expect_bench_refused(const Args& args, int status, const std::vector<std::string>& parts) {
  expect_refused(run_winnow(bench(args)), status, parts);
}

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    keys.insert(key);
  }
  return keys;
}

TEST(Bench, MeasuresPromptsThenDecodingAtEveryDepth) {
  EXPECT_EQ(texts(runs_of({"-p", "16,8", "-n", "4", "-d", "0,20"}), "test"),
            (Texts{"pp16", "pp8", "tg4", "pp16 @ d20", "pp8 @ d20", "tg4 @ d20"}));
  EXPECT_EQ(texts(runs_of({"-p", "0", "-n", "3"}), "test"), Texts{"tg3"});
  EXPECT_EQ(texts(runs_of({"-p", "3", "-n", "0"}), "test"), Texts{"pp3"});
}

TEST(Bench, CrossesItsLists) {
  const auto runs = runs_of({"-p", "8", "-n", "0", "-b", "4,8", "-ctk", "f16,f32", "-ctv", "bf16",
                             "-np", "1,2", "--weights", "file,f16", "--prefill",
                             "layer-major,chunk-major", "--evict", "after-prompt"});
  EXPECT_EQ(runs.size(), 32U);
  std::set<std::string> combinations;
  for (const json& run : runs) {
    combinations.insert(json{run["n_batch"], run["type_k"], run["type_v"], run["n_sequences"],
                             run["weights"], run["prefill"]}
                            .dump());
    EXPECT_EQ(run["type_v"], "bf16");
  }
  EXPECT_EQ(combinations.size(), 32U);
  EXPECT_EQ(runs.front()["weights"], "file");
  EXPECT_EQ(runs.back()["weights"], "f16");
}

TEST(Bench, TakesListsInPieces) {
  EXPECT_EQ(texts(runs_of({"-p", "4", "-p", "8, 6", "-n", "0"}), "test"),
            (Texts{"pp4", "pp8", "pp6"}));
  EXPECT_EQ(texts(runs_of({"-p", "4", "-n", "0", "--policy", "full;knorm:budget=20", "--policy",
                           "streaming:budget=20"}),
                  "policy"),
            (Texts{"full", "knorm:budget=20", "streaming:budget=20"}));
  const std::string other = write_tiny_model({.n_layers = 3});
  EXPECT_EQ(texts(runs_of({"-m", other, "-p", "4", "-n", "0"}), "model_filename"),
            (Texts{tiny_model(), other}));
}

TEST(Bench, GivesEveryPolicyButFullEveryBudget) {
  EXPECT_EQ(texts(runs_of({"-p", "4", "-n", "0", "--policy", "full;knorm;streaming", "--budget",
                           "16,50%"}),
                  "policy"),
            (Texts{"full", "knorm:budget=16", "knorm:budget=50%", "streaming:budget=16",
                   "streaming:budget=50%"}));
  EXPECT_EQ(texts(runs_of({"-p", "4", "-n", "0", "--budget", "16"}), "policy"),
            Texts{"snapkv:budget=16,obs_window=16"});
  EXPECT_EQ(texts(runs_of({"-p", "4", "-n", "0"}), "policy"), Texts{"full"});
}

TEST(Bench, HasTheDocumentedFields) {
  const auto runs = runs_of({"-p", "8", "-n", "4"});
  ASSERT_EQ(runs.size(), 2U);
  for (const json& run : runs) {
    EXPECT_EQ(keys_of(run), (std::set<std::string>{"test",
                                                   "test_time",
                                                   "build",
                                                   "machine",
                                                   "model_filename",
                                                   "model_architecture",
                                                   "model_fingerprint",
                                                   "model_size",
                                                   "model_n_params",
                                                   "weights",
                                                   "weights_bytes",
                                                   "rope",
                                                   "n_threads",
                                                   "n_batch",
                                                   "type_k",
                                                   "type_v",
                                                   "policy",
                                                   "budget_rows",
                                                   "evict",
                                                   "prefill",
                                                   "n_sequences",
                                                   "n_depth",
                                                   "n_prompt",
                                                   "n_gen",
                                                   "repetitions",
                                                   "prefill_tok_s",
                                                   "decode_tok_s",
                                                   "ttft_ms",
                                                   "tok_s",
                                                   "samples_ns",
                                                   "step_ms",
                                                   "evictions",
                                                   "kv_bytes",
                                                   "residual_bytes",
                                                   "compute_bytes",
                                                   "read",
                                                   "compute"}));
    EXPECT_EQ(keys_of(run["build"]),
              (std::set<std::string>{"version", "compiler", "ggml", "instruction_set"}));
    EXPECT_EQ(keys_of(run["machine"]),
              (std::set<std::string>{"cpu", "n_processors", "cache_bytes"}));
    EXPECT_EQ(keys_of(run["tok_s"]),
              (std::set<std::string>{"median", "min", "max", "mean", "stddev"}));
    EXPECT_EQ(keys_of(run["evictions"]), (std::set<std::string>{"count", "ms", "ms_per_occasion"}));
    EXPECT_EQ(keys_of(run["kv_bytes"]), (std::set<std::string>{"now", "peak", "full_cache"}));
    EXPECT_EQ(keys_of(run["weights_bytes"]), (std::set<std::string>{"mapped", "expanded"}));
    EXPECT_EQ(keys_of(run["read"]), (std::set<std::string>{"gb_s", "peak_gb_s", "share"}));
    EXPECT_EQ(keys_of(run["compute"]), (std::set<std::string>{"gflop_s", "peak_gflop_s", "share"}));
    EXPECT_EQ(run["samples_ns"].size(), 2U);
    EXPECT_EQ(run["repetitions"], 2);
    EXPECT_GT(run["read"]["peak_gb_s"], 0);
    EXPECT_GT(run["compute"]["peak_gflop_s"], 0);
    EXPECT_LE(run["tok_s"]["min"], run["tok_s"]["median"]);
    EXPECT_LE(run["tok_s"]["median"], run["tok_s"]["max"]);
  }
  EXPECT_EQ(keys_of(runs[0]["step_ms"]), (std::set<std::string>{"median", "p95", "max"}));
  EXPECT_TRUE(runs[0]["step_ms"]["p95"].is_null());
  EXPECT_GT(runs[1]["step_ms"]["median"], 0);
  EXPECT_LE(runs[1]["step_ms"]["median"], runs[1]["step_ms"]["p95"]);
  EXPECT_LE(runs[1]["step_ms"]["p95"], runs[1]["step_ms"]["max"]);
  EXPECT_EQ(runs[0]["n_prompt"], 8);
  EXPECT_EQ(runs[0]["n_gen"], 0);
  EXPECT_EQ(runs[0]["prefill_tok_s"], runs[0]["tok_s"]["median"]);
  EXPECT_TRUE(runs[0]["decode_tok_s"].is_null());
  EXPECT_TRUE(runs[0]["read"]["share"].is_null());
  EXPECT_GT(runs[0]["ttft_ms"], 0);
  EXPECT_GT(runs[0]["compute"]["share"], 0);
  EXPECT_EQ(runs[1]["n_gen"], 4);
  EXPECT_EQ(runs[1]["decode_tok_s"], runs[1]["tok_s"]["median"]);
  EXPECT_TRUE(runs[1]["prefill_tok_s"].is_null());
  EXPECT_TRUE(runs[1]["ttft_ms"].is_null());
  EXPECT_TRUE(runs[1]["compute"]["share"].is_null());
  EXPECT_GT(runs[1]["read"]["share"], 0);
}

TEST(Bench, SpeedsAreTokensByTheirTime) {
  for (const json& run : runs_of({"-p", "8", "-n", "4", "-np", "3", "-r", "1"})) {
    const int n_tokens = 3 * (run["n_prompt"].get<int>() + run["n_gen"].get<int>());
    EXPECT_NEAR(run["tok_s"]["median"], n_tokens * 1e9 / run["samples_ns"][0].get<double>(), 1e-6);
    EXPECT_EQ(run["tok_s"]["stddev"], 0);
  }
}

// The tiny model has 4 heads; a row of f16 keys and values of 16 with its position takes 68 bytes.
TEST(Bench, CountsTheRowsOfItsCaches) {
  constexpr int kRow = 68;
  for (const json& run : runs_of({"-p", "16", "-n", "8", "-d", "40", "-np", "2"})) {
    const int rows = 40 + (run["n_prompt"] == 16 ? 16 : 8);
    EXPECT_EQ(run["kv_bytes"]["now"], 2 * 4 * rows * kRow);
    EXPECT_EQ(run["kv_bytes"]["peak"], 2 * 4 * rows * kRow);
    EXPECT_EQ(run["kv_bytes"]["full_cache"], 2 * 4 * rows * kRow);
    EXPECT_EQ(run["evictions"]["count"], 0);
    EXPECT_TRUE(run["evictions"]["ms_per_occasion"].is_null());
    EXPECT_TRUE(run["budget_rows"].is_null());
  }
}

// Every repetition begins with the rows that the context was cut to, whatever the one before evicted.
TEST(Bench, EvictsTheSameInEveryRepetition) {
  const auto runs = runs_of({"-p", "16", "-n", "8", "-d", "40", "--policy", "streaming:budget=20"});
  ASSERT_EQ(runs.size(), 2U);
  for (const json& run : runs) {
    EXPECT_EQ(run["budget_rows"], 20);
    EXPECT_EQ(run["prefill"], "layer-major");
    EXPECT_EQ(run["kv_bytes"]["now"], 4 * 20 * 68);
    EXPECT_GT(run["evictions"]["ms"], 0);
  }
  EXPECT_EQ(runs[0]["evictions"]["count"], 1);
  EXPECT_EQ(runs[1]["evictions"]["count"], 8);
  EXPECT_EQ(runs[1]["kv_bytes"]["peak"], 4 * 21 * 68);
}

TEST(Bench, EvictsChunksOnTheWay) {
  const auto runs = runs_of({"-p", "40", "-n", "0", "-b", "10", "--policy", "streaming:budget=20",
                             "--evict", "per-chunk"});
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0]["prefill"], "chunk-major");
  EXPECT_EQ(runs[0]["evictions"]["count"], 2);
  EXPECT_EQ(runs[0]["kv_bytes"]["peak"], 4 * 30 * 68);
}

TEST(Bench, ABudgetInPercentIsOfTheWholePrompt) {
  const auto runs =
      runs_of({"-p", "60", "-n", "8", "-d", "40", "--policy", "knorm", "--budget", "50%"});
  EXPECT_EQ(texts(runs, "budget_rows"), (Texts{"50", "20"}));
}

TEST(Bench, SameModelSameFingerprint) {
  const std::string other = write_tiny_model({.seed = 2});
  const auto fingerprints = texts(
      runs_of({"-m", other, "-p", "4", "-n", "0", "--weights", "file,f32"}), "model_fingerprint");
  ASSERT_EQ(fingerprints.size(), 4U);
  EXPECT_EQ(fingerprints[0], fingerprints[1]);
  EXPECT_NE(fingerprints[0], fingerprints[2]);
  EXPECT_EQ(fingerprints[0].size(), 16U);
}

TEST(BenchOutput, IsATableByDefault) {
  const Outcome outcome = run_winnow(bench({"-p", "8", "-n", "4", "-np", "1,2"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::istringstream lines(outcome.out);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) {
    all.push_back(line);
  }
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[0],
            "| model | size | params | n_sequences | threads | policy | test | t/s | KV cache | of "
            "peak |");
  for (const std::string& line : all) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 11) << line;
  }
  EXPECT_NE(all[2].find("| full | pp8 | "), std::string::npos) << all[2];
  EXPECT_NE(all[2].find(" ± "), std::string::npos) << all[2];
}

TEST(BenchOutput, IsAnArray) {
  const json runs = json_of(bench({"-p", "8,4", "-n", "0", "-o", "json"}));
  ASSERT_TRUE(runs.is_array());
  EXPECT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[1]["test"], "pp4");
}

TEST(BenchOutput, IsUtf8WhateverTheFileIsCalled) {
  const std::string path = temporary_path("caf\xe9.gguf");
  std::filesystem::copy_file(tiny_model(), path);
  const json run =
      json_of({"bench", "-m", path, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--json"});
  EXPECT_NE(run["model_filename"].get<std::string>().find("caf\xef\xbf\xbd.gguf"),
            std::string::npos);
}

TEST(BenchOutput, IsCommaSeparated) {
  const Outcome outcome = run_winnow(bench({"-p", "8,4", "-n", "0", "-o", "csv"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
  EXPECT_EQ(outcome.out.rfind("\"test\",\"test_time\",\"build.version\",", 0), 0U) << outcome.out;
  EXPECT_NE(outcome.out.find("\n\"pp4\","), std::string::npos) << outcome.out;
}

TEST(RefusedBench, ListsThatMakeNoSense) {
  expect_bench_refused({"-p", "8,,4"}, kInvalidArgument, {"--n-prompt '8,,4'", "empty item"});
  expect_bench_refused({"-p", ""}, kInvalidArgument, {"--n-prompt"});
  expect_bench_refused({"-n", "four"}, kInvalidArgument, {"--n-gen 'four'", "0 to"});
  expect_bench_refused({"-n", "4.5"}, kInvalidArgument, {"--n-gen '4.5'"});
  expect_bench_refused({"-d", "-1"}, kInvalidArgument, {"--n-depth '-1'"});
  expect_bench_refused({"-b", "0"}, kInvalidArgument, {"--batch-size '0'", "1 to"});
  expect_bench_refused({"-np", "0"}, kInvalidArgument, {"--parallel '0'", "1 to 256"});
  expect_bench_refused({"-r", "0"}, kInvalidArgument, {"--repetitions", "Value 0"});
  expect_bench_refused({"-ctk", "q8"}, kInvalidArgument, {"'q8'", "f32, f16, bf16"});
  expect_bench_refused({"--weights", "q4"}, kInvalidArgument, {"'q4'", "file, f16"});
  expect_bench_refused({"--prefill", "fast"}, kInvalidArgument, {"'fast'"});
  expect_bench_refused({"--evict", "before-question"}, kInvalidArgument,
                       {"before-question", "after-prompt, per-chunk"});
  expect_bench_refused({"--evict", "legacy-order"}, kInvalidArgument,
                       {"legacy-order", "after-prompt, per-chunk"});
  expect_bench_refused({"-o", "sql"}, kInvalidArgument, {"--output", "sql"});
  expect_bench_refused({"-p", "0", "-n", "0"}, kInvalidArgument, {"nothing to measure"});
  expect_refused(run_winnow({"bench", "-m", tiny_model(), "-t", "0"}), kInvalidArgument,
                 {"0 threads", "1 to 512"});
  expect_refused(run_winnow({"bench"}), kInvalidArgument, {"--model is required"});
  std::string many = "1";
  for (int i = 0; i < 200; ++i) {
    many += ",1";
  }
  expect_bench_refused({"-d", many, "-b", many}, kInvalidArgument, {"more than 10000"});
}

TEST(RefusedBench, PoliciesThatMakeNoSense) {
  expect_bench_refused({"--policy", "full;knomr:budget=8"}, kInvalidArgument, {"knomr", "knorm"});
  expect_bench_refused({"--policy", "knorm"}, kInvalidArgument, {"budget"});
  expect_bench_refused({"--policy", "knorm:budget=8", "--budget", "9"}, kInvalidArgument,
                       {"budget=8", "--budget is 9"});
  expect_bench_refused({"--policy", "full;"}, kInvalidArgument, {"--policy 'full;'", "empty item"});
  expect_bench_refused({"--budget", "8,x"}, kInvalidArgument, {"'x'"});
  expect_bench_refused({"--policy", "full", "--budget", "x"}, kInvalidArgument, {"'x'"});
}

// What cannot run is named; what ran before is there.
TEST(RefusedBench, NamesTheCombination) {
  expect_bench_refused(
      {"-d", "5000"}, kInvalidArgument,
      {tiny_model(), "policy full", "5512 tokens", "4096", "--allow-beyond-context"});
  EXPECT_EQ(
      run_winnow(bench({"-p", "1", "-n", "0", "-d", "4096", "--allow-beyond-context"})).status, 0);
  expect_refused(run_winnow({"bench", "-m", "/no/such/model"}), kNotFound, {"/no/such/model"});
  const Outcome late =
      run_winnow(joined(bench({"-p", "8", "-n", "0", "-d", "0,5000", "-o", "json"}), {}));
  EXPECT_EQ(late.status, kInvalidArgument);
  EXPECT_EQ(json::parse(late.out).size(), 1U);
  EXPECT_NE(late.err.find("5008"), std::string::npos) << late.err;
}

TEST(RefusedBench, ChunksCutInLayerMajorOrder) {
  expect_bench_refused(
      {"-p", "40", "--budget", "20", "--evict", "per-chunk", "--prefill", "layer-major"},
      kInvalidArgument, {"policy snapkv:budget=20", "chunk-major"});
}

TEST(RefusedBench, APlanThatDoesNotFit) {
  expect_bench_refused({"-p", "8", "-n", "0", "-d", "200000000", "--allow-beyond-context"},
                       kResourceExhausted, {"pp8 @ d200000000", "policy full", "needs"});
  expect_bench_refused({"-p", "200000000", "-n", "0", "-np", "256", "--allow-beyond-context"},
                       kInvalidArgument, {"256 sequences of 200000000 tokens", "1073741824"});
}

}  // namespace
}  // namespace winnow::test
