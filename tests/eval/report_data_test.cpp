// The numbers of a report are those of the records: recomputed here, and compared with summary.json.

#include "eval/report_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "eval/summary.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::error_of;

const json kConfig = {
    {"model", {{"architecture", "qwen2"}, {"fingerprint", "0f"}}},
    {"shard", {1, 1}},
    {"tasks", {"niah"}},
    {"policies",
     {"full", "snapkv+adakv:budget=10%,n_recent=0", "knorm:budget=50%", "random:budget=50%"}},
    {"lengths", {512, 1024}},
    {"n", 6}};

Record record(int index, int n_tokens, const std::string& policy, double score, int64_t bytes) {
  Record made;
  made.task = "niah";
  made.n_tokens = n_tokens;
  made.index = index;
  made.question = policy == "full" ? "none" : "agnostic";
  made.policy = policy;
  made.id = std::to_string(index);
  made.labels["depth"] = index % 2 == 0 ? "0.00" : "0.50";
  made.answers = {"4711"};
  made.metrics = {{"score", score}, {"gold_nll", 2 - score}};
  made.kept_rows = {{index, 2}, {3, 4}};
  made.rows_evicted = policy == "full" ? 0 : 10;
  made.kv_bytes = bytes;
  made.kv_full_bytes = 1000;
  made.compress_ms = index;
  return made;
}

// Of two lengths, six samples and four arms; the last one is worse than the third with as many bytes.
std::vector<Record> some_records() {
  std::vector<Record> records;
  for (const int n_tokens : {512, 1024}) {
    for (int index = 0; index < 6; ++index) {
      records.push_back(record(index, n_tokens, "full", 1, 1000));
      records.push_back(
          record(index, n_tokens, "snapkv+adakv:budget=10%,n_recent=0", index % 3 != 0, 100));
      records.push_back(record(index, n_tokens, "knorm:budget=50%", index != 0, 500));
      records.push_back(record(index, n_tokens, "random:budget=50%", 0, 500));
    }
  }
  return records;
}

ReportFolder folder_of(const std::vector<Record>& records, const std::string& name = "a") {
  return {.name = name,
          .config = kConfig,
          .samples = {.records = records, .problems = {}},
          .summary = json::parse(to_json(summarize(records)).dump())};
}

ordered_json data_of(const ReportFolder& folder) {
  return report_data(std::span(&folder, 1),
                     {.title = "t", .baseline = {}, .winnow = "1", .notes = {}});
}

std::string write_folder(const std::string& name, const std::string& samples) {
  const std::string path = test::temporary_path("report_" + name);
  std::filesystem::create_directories(path);
  std::ofstream(path + "/config.json") << kConfig.dump();
  std::ofstream(path + "/samples.jsonl") << samples;
  return path;
}

TEST(ReportData, HasTheNumbersOfSummaryJson) {
  const ReportFolder folder = folder_of(some_records());
  const ordered_json data = data_of(folder);
  ASSERT_EQ(data["folders"].size(), 1);
  EXPECT_EQ(json::parse(data["folders"][0]["summary"].dump()), folder.summary);
  EXPECT_EQ(data["folders"][0]["arms"].size(), folder.summary["groups"].size());
  EXPECT_TRUE(data["folders"][0]["problems"].empty()) << data["folders"][0]["problems"];
  EXPECT_EQ(data["folders"][0]["model"], "qwen2 0f");
}

TEST(ReportData, HasAPanelForEachTaskAndLength) {
  const ordered_json data = data_of(folder_of(some_records()));
  ASSERT_EQ(data["panels"].size(), 2);
  EXPECT_EQ(data["panels"][0]["n_tokens"], 512);
  EXPECT_EQ(data["panels"][0]["groups"], ordered_json({0, 1, 2, 3}));
  EXPECT_EQ(data["panels"][1]["groups"], ordered_json({4, 5, 6, 7}));
  EXPECT_EQ(data["panels"][1]["primary"], "score");
}

TEST(ReportData, FrontsLeaveOutWhatIsBeaten) {
  std::vector<Record> records = some_records();
  const auto front = [](const ordered_json& data, const char* metric) {
    for (const auto& each : data["panels"][0]["fronts"]) {
      if (each["metric"] == metric && each["question"] == "agnostic") {
        return each["groups"];
      }
    }
    return ordered_json();
  };
  ordered_json data = data_of(folder_of(records));
  EXPECT_EQ(front(data, "score"), ordered_json({1, 2, 0}));
  EXPECT_EQ(front(data, "gold_nll"), ordered_json({1, 2, 0}));  // the lower the better
  records[1].is_within_budget = false;                          // what is suspicious is not best
  data = data_of(folder_of(records));
  EXPECT_EQ(front(data, "score"), ordered_json({2, 0}));
}

TEST(ReportData, DescribesArms) {
  const ordered_json data = data_of(folder_of(some_records()));
  const ordered_json& arm = data["folders"][0]["arms"][1];
  EXPECT_EQ(arm["method"], "snapkv+adakv:n_recent=0");
  EXPECT_EQ(arm["budget"], "10%");
  EXPECT_EQ(arm["n_kept"], ordered_json({{2.5, 2.0}, {3.0, 4.0}}));
  EXPECT_EQ(arm["depths"]["depth"], ordered_json({"0.00", "0.50"}));
  EXPECT_EQ(arm["depths"]["n"], ordered_json({3, 3}));  // samples 1, 3 and 5 at the second
  EXPECT_DOUBLE_EQ(arm["depths"]["metrics"]["score"][1], 2.0 / 3);
  EXPECT_EQ(arm["answers"].size(), 3);
  EXPECT_EQ(arm["answers"][0]["answer"], "4711");
}

TEST(ReportData, CutsLongAnswersBetweenCharacters) {
  std::vector<Record> records = some_records();
  for (size_t n = 230; n < 250; ++n) {
    records[0].answers = {std::string(n, 'a') + "€€€€€€€€"};
    const ordered_json data = data_of(folder_of(records));
    EXPECT_NO_THROW(data.dump());  // throws for text that is not UTF-8
  }
}

TEST(ReportData, SaysWhatIsWrongWithAFolder) {
  ReportFolder folder = folder_of(some_records());
  folder.samples.problems = {"line 7: not JSON"};
  folder.config["shard"] = {1, 4};
  folder.summary["groups"][0]["n"] = 99;
  const std::string problems = data_of(folder)["folders"][0]["problems"].dump();
  for (const char* part : {"line 7: not JSON; it is left out", "not what samples.jsonl comes to",
                           "shard [1,4]", "winnow eval merge"}) {
    EXPECT_NE(problems.find(part), std::string::npos) << part << " in " << problems;
  }
  folder.summary = nullptr;
  EXPECT_NE(data_of(folder)["folders"][0]["problems"].dump().find("has not ended"),
            std::string::npos);
}

TEST(ReportData, TakesRefusedArmsAndKeptRowsOfAnotherShape) {
  std::vector<Record> records = some_records();
  for (Record& each : records) {
    if (each.policy == "random:budget=50%") {
      each.refused = "the budget comes to no row";
    }
  }
  records[5].kept_rows = {{1}};
  const ordered_json data = data_of(folder_of(records));
  EXPECT_EQ(data["folders"][0]["summary"]["groups"][3]["n"], 0);
  EXPECT_TRUE(data["folders"][0]["arms"][3]["n_kept"].empty());
  EXPECT_EQ(data["folders"][0]["arms"][1]["n_kept"].size(), 2);
}

TEST(ReportFolders, OfTheSameContentCountOnce) {
  std::vector<Record> other = some_records();
  other[0].metrics["score"] = 0.5;
  std::vector<std::string> notes;
  const std::vector<ReportFolder> kept = without_repeats(
      {folder_of(some_records(), "a"), folder_of(other, "b"), folder_of(some_records(), "c")},
      notes);
  ASSERT_EQ(kept.size(), 2);
  EXPECT_EQ(kept[1].name, "b");
  EXPECT_EQ(notes, std::vector<std::string>{"'c' has the same results as 'a' and is left out"});
}

TEST(ReportFolders, AreReadAsFarAsTheyCanBe) {
  const std::string line = to_json(some_records()[0]).dump() + "\n";
  const ReportFolder folder = read_report_folder(write_folder("corrupt", "{oops\n" + line));
  EXPECT_EQ(folder.samples.records.size(), 1);
  EXPECT_EQ(folder.samples.problems, std::vector<std::string>{"line 1: not JSON"});
  EXPECT_TRUE(folder.summary.is_null());

  const std::string absent = test::temporary_path("report_absent");
  EXPECT_NE(error_of(ErrorCode::kNotFound, [&] { read_report_folder(absent); }).find(absent),
            std::string::npos);
  EXPECT_NE(
      error_of(ErrorCode::kInvalidArgument, [] { read_report_folder(write_folder("empty", "")); })
          .find("has no samples"),
      std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument,
                     [] { read_report_folder(write_folder("no_records", "{oops\n")); })
                .find("line 1: not JSON"),
            std::string::npos);
  const std::string list = write_folder("list", line);
  std::ofstream(list + "/config.json") << "[1]";
  error_of(ErrorCode::kBadData, [&] { read_report_folder(list); });
  EXPECT_NE(model_name(json::object()).find("does not name"), std::string::npos);
}

}  // namespace
}  // namespace winnow::eval
