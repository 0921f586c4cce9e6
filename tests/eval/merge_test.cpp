// Shards become the whole, and nothing else does.

#include "eval/merge.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "eval/results.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

using test::error_of;

std::string shard(const std::string& name, int i, int k, int seed, std::vector<int> indices) {
  const std::string folder = test::temporary_path("merge_" + name);
  Results results(folder, {{"seed", seed},
                           {"shard", {i, k}},
                           {"tasks", {"niah"}},
                           {"lengths", {0}},
                           {"n", 4},
                           {"policies", {"full"}},
                           {"question", {"agnostic"}}});
  for (const int index : indices) {
    Record record;
    record.task = "niah";
    record.index = index;
    record.policy = "full";
    record.metrics["score"] = 1;
    results.add(record);
  }
  return folder;
}

std::string refusal(const std::vector<std::string>& folders) {
  return error_of(ErrorCode::kInvalidArgument,
                  [&] { merge(folders, test::temporary_path("merge_refused"), ""); });
}

TEST(Merge, PutsAllShardsTogether) {
  const std::string output = test::temporary_path("merge_all");
  const std::vector<std::string> folders{shard("b", 2, 2, 1, {1, 3}), shard("a", 1, 2, 1, {0, 2})};
  std::ofstream(folders[0] + "/samples.jsonl", std::ios::app) << "broken\n";
  const Summary summary = merge(folders, output, "");
  ASSERT_EQ(summary.groups.size(), 1);
  EXPECT_EQ(summary.groups[0].n, 4);
  EXPECT_EQ(summary.problems, std::vector<std::string>{"shard 2/2, line 3: not JSON"});
  EXPECT_EQ(read_samples(output, read_config(output)).records.size(), 4);
  EXPECT_EQ(read_config(output)["shard"], (nlohmann::json{1, 1}));
  // Once more would mix them.
  error_of(ErrorCode::kInvalidArgument, [&] { merge(folders, output, ""); });
}

TEST(Merge, RefusesWhatDoesNotBelongTogether) {
  const std::string first = shard("1of3", 1, 3, 1, {0});
  const std::string second = shard("2of3", 2, 3, 1, {1});
  EXPECT_NE(refusal({}).find("no folder"), std::string::npos);
  EXPECT_NE(refusal({first, second}).find("3/3 is missing"), std::string::npos);
  EXPECT_NE(refusal({first, first}).find("both shard 1/3"), std::string::npos);
  EXPECT_NE(refusal({first, shard("1of2", 1, 2, 1, {0})}).find("overlap"), std::string::npos);
  EXPECT_NE(refusal({first, shard("other", 2, 3, 5, {1})}).find("seed"), std::string::npos);
  EXPECT_NE(
      refusal({shard("x", 1, 2, 1, {0, 2}), shard("y", 2, 2, 1, {0, 2})}).find("another shard"),
      std::string::npos);
  EXPECT_NE(refusal({shard("whole", 1, 2, 1, {0, 2}), shard("half", 2, 2, 1, {1})})
                .find("1 of 2 records: it has not ended"),
            std::string::npos);
  error_of(ErrorCode::kNotFound, [] {
    const std::vector<std::string> absent{test::temporary_path("merge_absent")};
    merge(absent, test::temporary_path("merge_refused"), "");
  });
}

// Policies are measured on a text once, however many questions tasks are asked, and once more in legacy order.
TEST(Merge, KnowsTheModesOfExperiments) {
  const std::string folder = test::temporary_path("merge_modes");
  Results results(folder, {{"shard", {1, 1}},
                           {"tasks", {"ppl"}},
                           {"lengths", {8}},
                           {"n", 1},
                           {"policies", {"full", "knorm:budget=4"}},
                           {"question", {"agnostic", "aware", "legacy-order"}}});
  const auto add = [&](const std::string& policy, const std::string& question) {
    Record record;
    record.task = "ppl";
    record.n_tokens = 8;
    record.policy = policy;
    record.question = question;
    record.metrics["nll"] = 1;
    results.add(record);
  };
  add("full", "none");
  add("knorm:budget=4", "none");
  EXPECT_NE(refusal({folder}).find("2 of 3 records: it has not ended"), std::string::npos);
  add("knorm:budget=4", "legacy-order");
  const std::vector<std::string> folders{folder};
  EXPECT_EQ(merge(folders, test::temporary_path("merge_all_modes"), "").groups.size(), 3);
}

}  // namespace
}  // namespace winnow::eval
