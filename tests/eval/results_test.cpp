// A folder of results survives what happens to files.

#include "eval/results.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;
using test::error_of;

Record record(int index, const std::string& policy = "full") {
  Record made;
  made.task = "niah";
  made.n_tokens = 100;
  made.index = index;
  made.question = "none";
  made.policy = policy;
  made.labels["depth"] = "0.50";
  made.answers = {"a\nb \"c\""};
  made.metrics = {{"score", 0.25}, {"gold_nll", 1e-300}};
  made.kept_rows = {{1, 2}, {3, 4}};
  made.kv_bytes = int64_t{1} << 40;
  return made;
}

ordered_json config(int seed = 1) {
  return {
      {"seed", seed}, {"tasks", {"niah"}}, {"policies", {"full"}}, {"lengths", {100}}, {"n", 4}};
}

std::string folder(const std::string& name) {
  return test::temporary_path("results_" + name);
}

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

TEST(Records, ComeBackAsTheyWere) {
  const Record one = record(3);
  EXPECT_EQ(to_json(record_of(nlohmann::json::parse(to_json(one).dump()))), to_json(one));
  EXPECT_NE(
      error_of(ErrorCode::kBadData, [] { record_of(nlohmann::json::object()); }).find("no 'task'"),
      std::string::npos);
  auto json = nlohmann::json::parse(to_json(one).dump());
  json["index"] = "three";
  EXPECT_NE(error_of(ErrorCode::kBadData, [&] { record_of(json); }).find("'index' is string"),
            std::string::npos);
  json = nlohmann::json::parse(to_json(one).dump());
  json["metrics"] = {{"kl", 0.5}};
  EXPECT_NE(error_of(ErrorCode::kBadData, [&] { record_of(json); })
                .find("(nll, score, perturbation, spearman, kappa)"),
            std::string::npos);
  error_of(ErrorCode::kBadData, [] { record_of(nlohmann::json(7)); });
}

TEST(Results, GoOnAfterALineThatWasCutOff) {
  const std::string path = folder("cut");
  {
    Results results(path, config());
    results.add(record(0));
    results.add(record(1));
  }
  const std::string samples = path + "/samples.jsonl";
  const std::string whole = read_text_file(samples);
  const size_t n_first = whole.find('\n') + 1;
  for (size_t n = 0; n <= whole.size(); n += n < n_first ? 37 : 41) {
    std::filesystem::resize_file(samples, n);
    {
      Results results(path, config());
      EXPECT_TRUE(results.problems().empty());
      for (int index = 0; index < 2; ++index) {
        if (!results.contains(record(index))) {
          results.add(record(index));
        }
      }
    }
    ASSERT_EQ(read_text_file(samples), whole) << n;
  }
}

TEST(Results, ReportLinesThatAreNoRecordsAndUseTheRest) {
  const std::string path = folder("corrupt");
  {
    Results results(path, config());
    results.add(record(0));
  }
  append(path + "/samples.jsonl",
         "{broken\n[1]\n" + to_json(record(0)).dump() + "\n" + to_json(record(1)).dump() + "\n");
  const Results results(path, config());
  EXPECT_EQ(results.records().size(), 2);
  EXPECT_EQ(results.problems(),
            (std::vector<std::string>{"line 2: not JSON", "line 3: a record is a JSON object",
                                      "line 4: the sample and arm of an earlier line"}));
}

// A number that does not fit is none: sample 2^32 + 1 is not sample 1.
TEST(Records, NumbersThatAreTooLargeAreRefused) {
  for (const char* const key : {"index", "n_tokens", "budget_rows", "rows_evicted"}) {
    for (const nlohmann::json& number :
         {nlohmann::json((int64_t{1} << 32) + 1), nlohmann::json(1e30), nlohmann::json(0.5)}) {
      nlohmann::json object = nlohmann::json::parse(to_json(record(0)).dump());
      object[key] = number;
      const bool is_wide = std::string(key) == "rows_evicted" && number.is_number_integer();
      if (is_wide) {
        EXPECT_NO_THROW(record_of(object)) << key;
      } else {
        error_of(ErrorCode::kBadData, [&] { record_of(object); });
      }
    }
  }
  nlohmann::json object = nlohmann::json::parse(to_json(record(0)).dump());
  object["kept_rows"] = {{1, 1e30}};
  error_of(ErrorCode::kBadData, [&] { record_of(object); });
}

TEST(Results, RecordsThatTheEvaluationDoesNotHaveAreReported) {
  const std::string path = folder("foreign");
  { Results(path, config()).add(record(0)); }
  std::string lines;
  const auto add = [&](const auto& change) {
    Record foreign = record(1);
    change(foreign);
    lines += to_json(foreign).dump() + "\n";
  };
  add([](Record& r) { r.task = "qa"; });
  add([](Record& r) { r.policy = "knorm:budget=9"; });
  add([](Record& r) { r.n_tokens = 99; });
  add([](Record& r) { r.index = 4; });
  add([](Record& r) { r.index = -1; });
  append(path + "/samples.jsonl", lines);
  const Results results(path, config());
  EXPECT_EQ(results.records().size(), 1);
  const std::string end = ", which config.json does not have";
  EXPECT_EQ(
      results.problems(),
      (std::vector<std::string>{"line 2: task 'qa'" + end, "line 3: policy 'knorm:budget=9'" + end,
                                "line 4: a length of 99 tokens" + end, "line 5: sample 4" + end,
                                "line 6: sample -1" + end}));
  error_of(ErrorCode::kBadData, [&] { read_samples(path, {{"seed", 1}}); });
}

TEST(Results, OfAnotherEvaluationAreNotMixedIn) {
  const std::string path = folder("other");
  { const Results results(path, config(1)); }
  const std::string error =
      error_of(ErrorCode::kInvalidArgument, [&] { const Results results(path, config(2)); });
  EXPECT_NE(error.find("seed (1 there, 2 here)"), std::string::npos) << error;
  append(folder("no_config"), "");
  error_of(ErrorCode::kIo, [] { const Results results(folder("no_config"), {}); });
  error_of(ErrorCode::kNotFound, [] { read_config(folder("absent")); });
  write_file_atomically(path + "/config.json", "{");
  error_of(ErrorCode::kBadData, [&] { read_config(path); });
}

}  // namespace
}  // namespace winnow::eval
