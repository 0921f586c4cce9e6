// What `winnow run` and `winnow methods` report of a run that works.

#include <set>

#include "cli/winnow_program.h"
#include "policy/allocators.h"
#include "policy/mergers.h"
#include "policy/methods.h"
#include "policy/policy.h"
#include "policy/readers.h"
#include "policy/transforms.h"

namespace winnow::test {
namespace {

using nlohmann::json;

constexpr int kHeads = 4;  // layers times KV heads of the tiny model

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    keys.insert(key);
  }
  return keys;
}

int64_t kept_rows(const json& report) {
  int64_t rows = 0;
  for (const json& layer : report["kept_rows"]["per_layer"]) {
    for (const json& head : layer) {
      rows += head.get<int64_t>();
    }
  }
  return rows;
}

// What must add up in every report.
void expect_consistent(const json& report) {
  const int64_t fed = report["positions_fed"];
  EXPECT_EQ(fed, report["n_prompt"].get<int64_t>() +
                     std::max<int64_t>(report["n_generated"].get<int64_t>() - 1, 0));
  EXPECT_EQ(report["rows_evicted"].get<int64_t>(), kHeads * fed - kept_rows(report));
  const int64_t row_bytes = report["row_bytes"];
  EXPECT_EQ(report["kv_bytes"]["now"].get<int64_t>(), kept_rows(report) * row_bytes);
  EXPECT_EQ(report["kv_bytes"]["full_cache"].get<int64_t>(), kHeads * fed * row_bytes);
  EXPECT_GE(report["kv_bytes"]["peak"], report["kv_bytes"]["now"]);
  EXPECT_GE(report["kv_bytes"]["committed"], report["kv_bytes"]["now"]);
  EXPECT_EQ(report["peak_bytes"].get<int64_t>(), report["kv_bytes"]["peak"].get<int64_t>() +
                                                     report["residual_bytes"].get<int64_t>() +
                                                     report["compute_bytes"].get<int64_t>());
}

void expect_kept(const json& report, int rows) {
  EXPECT_EQ(report["kept_rows"]["min"], rows);
  EXPECT_EQ(report["kept_rows"]["max"], rows);
  EXPECT_EQ(kept_rows(report), int64_t{kHeads} * rows);
}

TEST(Report, HasTheDocumentedKeysAndTypes) {
  const json report = tiny_json(
      {"-f", document(100), "-p", "Why?", "-n", "8", "--policy", "knorm", "--budget", "50"});
  EXPECT_EQ(keys_of(report), (std::set<std::string>{"answer",
                                                    "stop",
                                                    "n_prompt",
                                                    "cached_tokens",
                                                    "n_document",
                                                    "n_generated",
                                                    "policy",
                                                    "budget_rows",
                                                    "capacity_rows",
                                                    "budget_extra_rows",
                                                    "protected",
                                                    "guarded_heads",
                                                    "evict",
                                                    "prefill",
                                                    "seed",
                                                    "positions_fed",
                                                    "rows_evicted",
                                                    "evicted_during_prompt",
                                                    "kept_rows",
                                                    "row_bytes",
                                                    "kv_bytes",
                                                    "residual_bytes",
                                                    "compute_bytes",
                                                    "decode_read_share",
                                                    "peak_bytes",
                                                    "policy_bytes",
                                                    "is_on_gpu",
                                                    "rss_peak_bytes",
                                                    "values_saturated",
                                                    "values_not_finite",
                                                    "ttft_ms",
                                                    "prefill_tok_s",
                                                    "decode_tok_s",
                                                    "evictions",
                                                    "weights",
                                                    "rope"}));
  EXPECT_EQ(keys_of(report["kept_rows"]), (std::set<std::string>{"min", "max", "per_layer"}));
  EXPECT_EQ(keys_of(report["kv_bytes"]),
            (std::set<std::string>{"now", "peak", "full_cache", "committed"}));
  EXPECT_EQ(keys_of(report["evictions"]),
            (std::set<std::string>{"count", "ms", "nan_scores", "query_head_rows"}));
  for (const char* key : {"answer", "stop", "policy", "evict", "prefill"}) {
    EXPECT_TRUE(report[key].is_string()) << key;
  }
  for (const char* key :
       {"n_prompt", "n_document", "n_generated", "budget_rows", "seed", "positions_fed",
        "rows_evicted", "row_bytes", "residual_bytes", "compute_bytes", "peak_bytes",
        "rss_peak_bytes", "values_saturated", "values_not_finite"}) {
    EXPECT_TRUE(report[key].is_number_integer()) << key;
  }
  for (const char* key : {"ttft_ms", "prefill_tok_s", "decode_tok_s"}) {
    EXPECT_TRUE(report[key].is_number_float()) << key;
    EXPECT_GT(report[key], 0) << key;
  }
  EXPECT_TRUE(report["evicted_during_prompt"].is_boolean());
  EXPECT_EQ(report["kept_rows"]["per_layer"].size(), 2U);
  EXPECT_EQ(report["kept_rows"]["per_layer"][0].size(), 2U);
}

// A model whose layers are quantised.
const std::string& quantized_model() {
  static const std::string path = [] {
    TinyModelOptions options;
    options.matrix_type = GGML_TYPE_Q4_1;
    return write_tiny_model(options);
  }();
  return path;
}

json quantized_json(const Args& args) {
  return json_of(joined({"run", "-m", quantized_model(), "-t", "1", "-f", document(200), "-n", "8",
                         "--temp", "0", "--ignore-eos", "--json"},
                        args));
}

TEST(Report, SaysWhichWeightsWereMultipliedWith) {
  struct Case {
    const char* option;
    const char* prompt;
    const char* decode;
  };
  for (const Case& c : {Case{"file", "file", "file"}, Case{"bf16", "bf16", "bf16"},
                        Case{"prompt-f16", "f16", "file"}}) {
    for (const Args& more : {Args{}, Args{"--dry-run"}}) {
      const json weights = quantized_json(joined({"--weights", c.option}, more))["weights"];
      EXPECT_EQ(
          keys_of(weights),
          (std::set<std::string>{"option", "prompt", "decode", "expanded_bytes", "mapped_bytes",
                                 "measured_speedup", "measure_ms", "expand_ms"}));
      EXPECT_EQ(weights["option"], c.option);
      EXPECT_EQ(weights["prompt"], c.prompt);
      EXPECT_EQ(weights["decode"], c.decode);
      EXPECT_EQ(weights["expanded_bytes"] > 0, std::string(c.option) != "file");
      EXPECT_EQ(weights["expand_ms"] > 0, std::string(c.option) != "file");
      EXPECT_GT(weights["mapped_bytes"], 0);
      EXPECT_TRUE(weights["measured_speedup"].is_null());
    }
  }
}

// Whatever is chosen on this machine can be asked for by name, and gives the same.
TEST(Report, WeightsThatWereChosenCanBeAskedFor) {
  const json report = quantized_json({});
  const json& weights = report["weights"];
  EXPECT_EQ(weights["option"], "auto");
  EXPECT_EQ(weights["decode"], "file");
  EXPECT_GT(weights["measured_speedup"], 0);
  EXPECT_GT(weights["measure_ms"], 0);
  EXPECT_GE(report["ttft_ms"],
            weights["measure_ms"].get<double>() + weights["expand_ms"].get<double>());
  const bool is_expanded = weights["prompt"] != "file";
  EXPECT_EQ(weights["expanded_bytes"] > 0, is_expanded);
  const std::string option = (is_expanded ? "prompt-" : "") + weights["prompt"].get<std::string>();
  const json asked = quantized_json({"--weights", option});
  EXPECT_EQ(asked["answer"], report["answer"]);
  EXPECT_EQ(asked["weights"]["expanded_bytes"], weights["expanded_bytes"]);
}

TEST(Report, MeasuresNothingForShortPromptsAndOtherTypes) {
  const json other = tiny_json({"-f", document(200), "-n", "1"})["weights"];
  EXPECT_EQ(other["option"], "auto");
  EXPECT_EQ(other["prompt"], "file");
  EXPECT_TRUE(other["measured_speedup"].is_null());
  const json brief = json_of({"run", "-m", quantized_model(), "-t", "1", "-p", "Why?", "-n", "1",
                              "--no-chat", "--json"})["weights"];
  EXPECT_TRUE(brief["measured_speedup"].is_null());
}

TEST(Report, FullCacheKeepsAll) {
  const json report = tiny_json({"-f", document(100), "-n", "8"});
  expect_consistent(report);
  EXPECT_EQ(report["policy"], "full");
  EXPECT_TRUE(report["budget_rows"].is_null());
  EXPECT_EQ(report["rows_evicted"], 0);
  EXPECT_EQ(report["evictions"]["count"], 0);
  EXPECT_EQ(report["prefill"], "chunk-major");
  EXPECT_EQ(report["stop"], "length");
  EXPECT_EQ(report["n_generated"], 8);
  expect_kept(report, report["positions_fed"]);
}

TEST(Report, BudgetInRowsHolds) {
  for (const char* order : {"layer-major", "chunk-major"}) {
    const json report = tiny_json({"-f", document(100), "-p", "Why?", "-n", "20", "--policy",
                                   "knorm", "--budget", "50", "--prefill", order});
    expect_consistent(report);
    EXPECT_EQ(report["prefill"], order);
    EXPECT_EQ(report["budget_rows"], 50);
    EXPECT_EQ(report["policy"], "knorm:budget=50");
    EXPECT_EQ(report["evict"], "after-prompt");
    EXPECT_EQ(report["evicted_during_prompt"], false);
    expect_kept(report, 50);
  }
}

TEST(Report, BudgetInPercentIsOfTheDocumentAndRoundsUp) {
  const json report = tiny_json(
      {"-f", document(101), "-p", "Why?", "-n", "20", "--policy", "knorm", "--budget", "12.5%"});
  expect_consistent(report);
  const int n_document = report["n_document"];
  const int n_around = report["n_prompt"].get<int>() - n_document;  // template and question
  EXPECT_NE(n_document % 8, 0) << "the test wants something to round";
  expect_kept(report, (n_document + 7) / 8 + n_around);
}

TEST(Report, CompressionRatioIsTheFractionRemoved) {
  const Args args = {"-f", document(100), "-n", "4", "--policy", "knorm"};
  const json report = tiny_json(joined(args, {"--compression-ratio", "0.9"}));
  EXPECT_EQ(report["policy"], "knorm:budget=10%");
  EXPECT_EQ(report["kept_rows"], tiny_json(joined(args, {"--budget", "10%"}))["kept_rows"]);
}

TEST(Report, SaysHowManyRowsQueryHeadsHaveChosen) {
  const auto query_head_rows = [](const std::string& group) {
    const json report = tiny_json({"-f", document(150), "-p", "Why?", "-n", "1", "--policy",
                                   "snapkv:budget=60,obs_window=4,n_recent=4,group=" + group});
    EXPECT_EQ(report["kept_rows"]["max"], 60) << group;
    return report["evictions"]["query_head_rows"].get<double>();
  };
  EXPECT_EQ(query_head_rows("mean"), 0);
  const double rows = query_head_rows("union");
  EXPECT_GE(rows, (60 - 4 - 4) / 2) << "two query heads share 52 rows, beside sinks and window";
  EXPECT_LT(rows, 60);
}

TEST(Report, BudgetInBytesIsDividedByAllHeads) {
  const json report =
      tiny_json({"-f", document(200), "-n", "20", "--policy", "knorm", "--budget", "20KiB"});
  expect_consistent(report);
  EXPECT_EQ(report["row_bytes"], 72);  // 16 keys and 16 values in f16, the position, the norm
  expect_kept(report, 20 * 1024 / (72 * kHeads));
  EXPECT_LE(report["kv_bytes"]["now"], 20 * 1024);
}

TEST(Report, BeforeQuestionPutsTheQuestionOnTop) {
  const json report = tiny_json({"-f", document(100), "-p", "Why?", "-n", "4", "--policy", "knorm",
                                 "--budget", "10%", "--evict", "before-question"});
  expect_consistent(report);
  EXPECT_EQ(report["evict"], "before-question");
  EXPECT_EQ(report["evicted_during_prompt"], true);
  const int n_document = report["n_document"];
  expect_kept(report, (n_document + 9) / 10 + report["n_prompt"].get<int>() - n_document);
}

TEST(Report, LegacyOrderIsNamed) {
  const json report = tiny_json({"-f", document(200), "-n", "4", "--policy", "knorm", "--budget",
                                 "50", "--legacy-order", "-b", "64"});
  expect_consistent(report);
  EXPECT_EQ(report["evict"], "legacy-order");
  EXPECT_EQ(report["prefill"], "chunk-major");
  EXPECT_EQ(report["evicted_during_prompt"], true);
  expect_kept(report, 50);
}

TEST(Report, PerChunkEvictsDuringThePrompt) {
  const json report = tiny_json({"-f", document(200), "-n", "4", "--policy", "knorm", "--budget",
                                 "50", "--evict", "per-chunk", "-b", "64"});
  expect_consistent(report);
  EXPECT_EQ(report["evicted_during_prompt"], true);
  EXPECT_EQ(report["prefill"], "chunk-major");
  EXPECT_EQ(report["kv_bytes"]["peak"], int64_t{kHeads} * (50 + 64) * 72);
  expect_kept(report, 50);
}

TEST(Report, PerChunkOfOneChunkIsNotDuringThePrompt) {
  const json report = tiny_json({"-f", document(20), "-n", "4", "--policy", "knorm", "--budget",
                                 "50", "--evict", "per-chunk"});
  EXPECT_EQ(report["evicted_during_prompt"], false);
  expect_kept(report, 50);
}

TEST(Report, SlackIsUsedByDecodingOnly) {
  const json report =
      tiny_json({"-f", document(100), "-n", "60", "--policy", "streaming:budget=50,slack=20"});
  expect_consistent(report);
  EXPECT_GE(report["kept_rows"]["min"], 50);
  EXPECT_LE(report["kept_rows"]["max"], 70);
  EXPECT_LT(report["evictions"]["count"], 10);
}

TEST(Report, JsonIsUtf8WhateverTheModelSays) {
  const Outcome outcome =
      run_winnow(tiny_run({"-p", "hello", "-n", "200", "--json", "--ignore-eos", "--seed", "3"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json report = json::parse(outcome.out);  // throws where it is not UTF-8
  EXPECT_NE(report["answer"].get<std::string>().find("\xef\xbf\xbd"), std::string::npos)
      << "the test wants an answer with bytes that are no characters";
}

TEST(Report, NothingGeneratedIsNothingWrong) {
  const json report = tiny_json({"-p", "hello", "-n", "0"});
  expect_consistent(report);
  EXPECT_EQ(report["answer"], "");
  EXPECT_EQ(report["n_generated"], 0);
  EXPECT_EQ(report["decode_tok_s"], 0);
}

TEST(Report, TheContextEndsAnAnswer) {
  const json report = tiny_json({"-p", "hello", "-c", "40", "--no-chat"});
  expect_consistent(report);
  EXPECT_EQ(report["stop"], "context");
  EXPECT_EQ(report["positions_fed"], 40);
}

std::string answer_of(const Args& args) {
  const Outcome outcome = run_winnow(
      joined({"run", "-m", tiny_model(), "-p", "hello", "-n", "40", "--ignore-eos", "-q"}, args));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.out;
}

TEST(Answer, IsTheSameForTheSameSeed) {
  const std::string answer = answer_of({"-t", "1", "--seed", "5"});
  EXPECT_EQ(answer, answer_of({"-t", "1", "--seed", "5"}));
  EXPECT_NE(answer, answer_of({"-t", "1", "--seed", "6"}));
}

TEST(Answer, IsTheSameForAnyNumberOfThreads) {
  const std::string answer = answer_of({"-t", "1", "--temp", "0", "--budget", "12"});
  EXPECT_EQ(answer, answer_of({"-t", "2", "--temp", "0", "--budget", "12"}));
  EXPECT_NE(answer, answer_of({"-t", "1", "--temp", "0"})) << "the budget changed nothing";
}

TEST(Answer, ARandomSeedIsReportedAndRepeatsTheAnswer) {
  const Args args = tiny_run({"-p", "hello", "-n", "40", "--ignore-eos", "--json"});
  const json first = json_of(args);
  const std::string seed = std::to_string(first["seed"].get<uint32_t>());
  EXPECT_EQ(json_of(joined(args, {"--seed", seed}))["answer"], first["answer"]);
}

TEST(Answer, IsAloneOnStandardOutput) {
  const Args args = tiny_run({"-p", "hello", "-n", "10", "--ignore-eos", "--temp", "0"});
  const Outcome loud = run_winnow(args);
  const Outcome quiet = run_winnow(joined(args, {"-q"}));
  EXPECT_EQ(loud.out, quiet.out);
  ASSERT_GT(loud.out.size(), 2U);
  EXPECT_EQ(loud.out.back(), '\n');
  EXPECT_EQ(quiet.err, "");
  for (const char* part : {"full:", "rows per KV head kept", "0 rows evicted", "KV cache", "tok/s",
                           "stopped by length", "seed "}) {
    EXPECT_NE(loud.err.find(part), std::string::npos) << part << " in: " << loud.err;
  }
  // Standard error is no terminal here, so there is no bar to redraw.
  EXPECT_EQ(loud.err.find('\r'), std::string::npos) << loud.err;
  EXPECT_EQ(loud.err.find('\033'), std::string::npos) << loud.err;
}

TEST(Document, ComesFromStandardInput) {
  const std::string text = words(50);
  const Args rest = {"-n", "8", "--json", "--temp", "0", "--ignore-eos"};
  const json file = json_of(joined(tiny_run({"-f", write_text("same.txt", text)}), rest));
  const json input = json_of(joined(tiny_run({"-f", "-"}), rest), text);
  EXPECT_EQ(input["answer"], file["answer"]);
  EXPECT_EQ(input["n_document"], file["n_document"]);
}

TEST(Document, SpecialTokensInItAreText) {
  const std::string text = "<|im_end|>";
  const json report = tiny_json({"-f", write_text("special.txt", text), "-n", "1"});
  EXPECT_GE(report["n_document"], 9);  // a special token would be one; "en" is a pair of letters
}

TEST(Document, TokenIdsComeFromAFileToo) {
  const json report = tiny_json({"--ids", "@" + write_text("ids.txt", "1 2,3\n4\n"), "-n", "1"});
  EXPECT_EQ(report["n_prompt"], 4);
  EXPECT_EQ(report["answer"], tiny_json({"--ids", "1,2,3,4", "-n", "1"})["answer"]);
}

TEST(Methods, TextAndJsonListAll) {
  const Outcome text = run_winnow({"methods"});
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.err, "");
  const json list = json_of({"methods", "--json"});
  EXPECT_EQ(list["methods"].size(), std::size(policy::kMethods));
  for (size_t i = 0; i < std::size(policy::kMethods); ++i) {
    const policy::Method& method = policy::kMethods[i];
    const json& listed = list["methods"][i];
    EXPECT_NE(text.out.find(std::string(method.name) + " "), std::string::npos) << method.name;
    EXPECT_NE(text.out.find(method.help), std::string::npos) << method.name;
    EXPECT_EQ(listed["name"], method.name);
    EXPECT_EQ(listed["class"], method.kind);
    EXPECT_EQ(listed["needs"], policy::describe_needs(method));
    EXPECT_EQ(listed["cost"], method.cost);
    EXPECT_EQ(listed["path_independent"], method.is_path_independent);
    EXPECT_EQ(listed["slack"], method.slack);
    EXPECT_EQ(listed["help"], method.help);
    EXPECT_EQ(listed["options"].size(), policy::describe_options(method).size());
  }
  EXPECT_EQ(list["transforms"].size(), std::size(policy::kTransforms));
  for (size_t i = 0; i < std::size(policy::kTransforms); ++i) {
    const policy::TransformPart& part = policy::kTransforms[i];
    const json& listed = list["transforms"][i];
    EXPECT_NE(text.out.find(part.help), std::string::npos) << part.name;
    EXPECT_EQ(listed["name"], part.name);
    EXPECT_EQ(listed["help"], part.help);
    EXPECT_EQ(listed["cost"], part.cost);
    EXPECT_EQ(listed["needs"], json(policy::describe_needs(part)));
    EXPECT_EQ(listed["decides"], part.make_normalizer != nullptr ? "scores" : "rows");
    EXPECT_EQ(listed["options"].size(), policy::describe_options(part).size());
  }
  EXPECT_EQ(list["allocators"].size(), std::size(policy::kAllocators));
  for (size_t i = 0; i < std::size(policy::kAllocators); ++i) {
    const policy::AllocatorPart& part = policy::kAllocators[i];
    const json& listed = list["allocators"][i];
    EXPECT_NE(text.out.find(part.help), std::string::npos) << part.name;
    EXPECT_EQ(listed["name"], part.name);
    EXPECT_EQ(listed["help"], part.help);
    EXPECT_EQ(listed["needs"], json(policy::describe_needs(part)));
    EXPECT_EQ(listed["divides"].size(), (part.divides_layers ? 1U : 0U) +
                                            (part.divides_heads ? 1U : 0U) +
                                            (part.make_rows != nullptr ? 1U : 0U));
    EXPECT_EQ(listed["options"].size(), policy::describe_options(part).size());
  }
  EXPECT_EQ(list["mergers"].size(), std::size(policy::kMergers));
  for (size_t i = 0; i < std::size(policy::kMergers); ++i) {
    const policy::MergerPart& part = policy::kMergers[i];
    const json& listed = list["mergers"][i];
    EXPECT_NE(text.out.find(part.help), std::string::npos) << part.name;
    EXPECT_EQ(listed["name"], part.name);
    EXPECT_EQ(listed["needs"], json(policy::describe_needs(part)));
    EXPECT_EQ(listed["cost"], part.cost);
    EXPECT_EQ(listed["options"].size(), policy::describe_options(part).size());
  }
  EXPECT_EQ(list["readers"].size(), std::size(policy::kReaders));
  for (size_t i = 0; i < std::size(policy::kReaders); ++i) {
    const policy::ReaderPart& part = policy::kReaders[i];
    const json& listed = list["readers"][i];
    EXPECT_NE(text.out.find(part.help), std::string::npos) << part.name;
    EXPECT_EQ(listed["name"], part.name);
    EXPECT_EQ(listed["cost"], part.cost);
    EXPECT_EQ(listed["options"].size(), policy::describe_options(part).size());
  }
  std::set<std::string> options;
  for (const json& option : list["policy_options"]) {
    options.insert(option["name"]);
  }
  EXPECT_EQ(options, (std::set<std::string>{"preset", "budget", "n_sink", "n_recent", "protect",
                                            "slack", "positions"}));
  // full has none, and these no contiguous one.
  std::set<std::string> in_place;
  for (const json& arm : list["arms"]) {
    in_place.insert(arm["policy"]);
  }
  std::erase_if(in_place, [&](const std::string& name) {
    return name.find(':') != std::string::npos ||
           in_place.count(name + ":positions=contiguous") > 0;
  });
  EXPECT_EQ(in_place,
            (std::set<std::string>{"cam@proxy", "chunkkv@proxy", "compactor", "h2o@proxy",
                                   "keyformer@proxy", "kvzip", "noncausal", "pyramid@proxy",
                                   "qfilters@keysvd", "squeeze@proxy", "tova@proxy"}));
  for (const json& arm : list["arms"]) {
    if (arm["policy"].get<std::string>().starts_with("qfilters:") ||
        arm["policy"] == "qfilters") {  // there is no file
      continue;
    }
    const auto policy = policy::Policy::parse(arm["policy"].get<std::string>(), "64");
    EXPECT_EQ(arm["positions"], policy.is_contiguous() ? "contiguous" : "preserved, gapped");
    EXPECT_EQ(arm["re_rotation"], policy.is_contiguous() ? "as keys are read" : "no");
    EXPECT_EQ(arm["own_guard"], policy.method().own_guard);
  }
}

}  // namespace
}  // namespace winnow::test
