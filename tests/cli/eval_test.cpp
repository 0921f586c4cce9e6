// winnow eval from outside: folders of results, tables, and what is refused.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "winnow_program.h"

namespace winnow::test {
namespace {

Args tiny_eval(const std::string& folder, const Args& more) {
  return joined({"eval", "niah", "-m", tiny_model(), "-t", "1", "--lengths", "600", "-n", "2", "-o",
                 temporary_path("eval_" + folder)},
                more);
}

TEST(Eval, WritesAFolderThatSaysEverything) {
  const Args args = tiny_eval("whole", {"--policy", "knorm;streaming", "--budgets", "10%;64",
                                        "--question", "both", "--json"});
  const nlohmann::json summary = json_of(args);
  EXPECT_EQ(summary["groups"].size(), 1 + 2 * 4);
  EXPECT_EQ(summary["groups"][0]["policy"], "full");
  EXPECT_EQ(summary["groups"][1]["n"], 2);
  EXPECT_LT(summary["groups"][1]["kept_fraction"], 0.25);
  const std::string folder = temporary_path("eval_whole");
  const auto config = nlohmann::json::parse(read_text_file(folder + "/config.json"));
  for (const char* key : {"winnow", "model", "weights", "rope", "tasks", "policies", "lengths", "n",
                          "seed", "question", "shard", "cache_type_k", "batch"}) {
    EXPECT_TRUE(config.contains(key)) << key;
  }
  EXPECT_EQ(nlohmann::json::parse(read_text_file(folder + "/summary.json")), summary);
  // Again: nothing is measured anew.
  const std::string samples = read_text_file(folder + "/samples.jsonl");
  EXPECT_EQ(json_of(args), summary);
  EXPECT_EQ(read_text_file(folder + "/samples.jsonl"), samples);
}

TEST(Eval, PrintsATable) {
  const Outcome outcome =
      run_winnow(tiny_eval("table", {"--policy", "knorm:budget=10%", "--question", "aware"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("niah, 600 tokens\npolicy"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\nfull"), std::string::npos);
  EXPECT_NE(outcome.out.find("\nknorm:budget=10%"), std::string::npos);
  EXPECT_NE(outcome.out.find("not a comparison: the full cache itself scores 0.00"),
            std::string::npos);
}

TEST(Eval, DumpsPromptsWithoutRunningThem) {
  const std::string path = temporary_path("prompts.jsonl");
  const Outcome outcome = run_winnow(
      {"eval", "niah", "-m", tiny_model(), "--lengths", "600", "-n", "2", "--dump-prompts", path});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string text = read_text_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_NE(first["document"].get<std::string>().find(first["answers"][0][0].get<std::string>()),
            std::string::npos);
}

TEST(Eval, PlantedRowsNeedNoModel) {
  const std::string folder = temporary_path("eval_planted");
  const Args args{"eval",
                  "perturbation",
                  "perturbation-isotropic",
                  "--policy",
                  "knorm:keep=high,n_recent=0;expected-attention",
                  "--budgets",
                  "64",
                  "--lengths",
                  "256",
                  "-n",
                  "3",
                  "-o",
                  folder,
                  "--json"};
  const nlohmann::json groups = json_of(args)["groups"];
  ASSERT_EQ(groups.size(), 6);
  EXPECT_NEAR(groups[0]["metrics"]["perturbation"]["mean"].get<double>(), 0, 1e-12);
  EXPECT_EQ(groups[1]["kept_fraction"], 0.25);
  const double planted = groups[1]["metrics"]["perturbation"]["mean"];
  const double noise = groups[4]["metrics"]["perturbation"]["mean"];
  EXPECT_GT(planted, 0.1);
  EXPECT_LT(planted, noise);
  EXPECT_NE(groups[2]["refused"].dump().find("there are no frequencies"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(read_text_file(folder + "/config.json"))["model"], nullptr);
  EXPECT_EQ(run_winnow({"report", folder, "-o", temporary_path("planted.html")}).status, 0);
}

// A method that needs attention first has a record too: of its refusal.
TEST(Eval, LegacyOrderIsAnArmOfItsOwn) {
  const nlohmann::json summary =
      json_of(tiny_eval("legacy", {"--policy", "knorm;snapkv", "--budgets", "10%", "--question",
                                   "agnostic", "--legacy-order", "-b", "128", "--json"}));
  std::map<std::string, std::string> n_of;
  for (const auto& group : summary["groups"]) {
    n_of[group["policy"].get<std::string>() + " " + group["question"].get<std::string>()] =
        group["n"].dump();
  }
  EXPECT_EQ(n_of["knorm:budget=10% agnostic"], "2");
  EXPECT_EQ(n_of["knorm:budget=10% legacy-order"], "2");
  const std::string samples = read_text_file(temporary_path("eval_legacy") + "/samples.jsonl");
  EXPECT_NE(samples.find("--legacy-order evicts before attention: policy 'snapkv:budget=10%'"),
            std::string::npos);
  const auto config =
      nlohmann::json::parse(read_text_file(temporary_path("eval_legacy") + "/config.json"));
  EXPECT_EQ(config["question"], nlohmann::json({"agnostic", "legacy-order"}));
}

TEST(Eval, SaysHowManyRowsQueryHeadsHaveChosen) {
  const nlohmann::json summary =
      json_of(tiny_eval("union", {"--policy", "snapkv;snapkv:group=union", "--budgets", "100",
                                  "--question", "aware", "--json"}));
  const nlohmann::json& together = summary["groups"][1];
  const nlohmann::json& apart = summary["groups"][2];
  ASSERT_EQ(apart["policy"], "snapkv:budget=100,group=union");
  EXPECT_EQ(apart["kv_bytes"], together["kv_bytes"]);
  EXPECT_GT(apart["metrics"]["query_head_rows"]["mean"], 0);
  EXPECT_LT(apart["metrics"]["query_head_rows"]["mean"], 100);
  EXPECT_FALSE(together["metrics"].contains("query_head_rows"));
}

TEST(EvalRefuses, WhatIsMissingOrWrong) {
  const std::string folder = temporary_path("eval_refused");
  const auto refused = [&](const Args& args, const std::vector<std::string>& parts) {
    expect_refused(run_winnow(joined({"eval"}, args)), kInvalidArgument, parts);
  };
  const Args on_tiny{"-m", tiny_model(), "-o", folder};
  refused({}, {"a task is needed"});
  refused({"niah", "-o", folder}, {"niah needs a model"});
  refused({"ppl", "perturbation", "-o", folder}, {"ppl needs a model"});
  refused({"niah", "-m", tiny_model()}, {"--output is needed"});
  refused(joined({"nia"}, on_tiny), {"'nia'", "niah"});
  refused(joined({"ppl"}, on_tiny), {"-f"});
  refused(joined({"niah", "-f", write_text("unused.txt", words(300))}, on_tiny),
          {"(-f)", "drift, ppl"});
  refused(joined({"niah", "--target", "8"}, on_tiny), {"(--target)", "ppl"});
  refused({"perturbation", "--legacy-order", "-o", folder}, {"legacy order", "drift, ppl"});
  refused(joined({"niah", "--policy", "knrom", "--budgets", "10%"}, on_tiny), {"knorm"});
  refused(joined({"niah", "--policy", "knorm"}, on_tiny), {"budget"});
  refused(joined({"niah", "--policy", "knorm", "--budgets", "10%;;5%"}, on_tiny), {"empty item"});
  refused(joined({"niah", "--lengths", "1k"}, on_tiny), {"'1k'"});
  refused(joined({"niah", "--question", "maybe"}, on_tiny), {"'maybe'", "agnostic"});
  refused(joined({"niah", "--shard", "3/2"}, on_tiny), {"'3/2'"});
  refused(joined({"niah", "--lengths", "100000"}, on_tiny), {"nothing could be measured", "4096"});
  EXPECT_EQ(run_winnow(joined({"eval", "niah", "-n", "0"}, on_tiny)).status, kInvalidArgument);
  expect_refused(run_winnow({"eval", "niah", "-m", "absent.gguf", "-o", folder}), kNotFound,
                 {"absent.gguf"});
}

TEST(EvalRefuses, ResultsOfAnotherEvaluation) {
  EXPECT_EQ(run_winnow(tiny_eval("mixed", {"-q"})).status, 0);
  expect_refused(run_winnow(tiny_eval("mixed", {"--seed", "1"})), kInvalidArgument,
                 {"seed (0 there, 1 here)"});
}

}  // namespace
}  // namespace winnow::test
