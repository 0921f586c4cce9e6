// --dry-run says what then happens, and the dumps say what happened.

#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

struct PlanCase {
  std::string name;
  Args args;
};

const std::vector<PlanCase>& plan_cases() {
  static const std::vector<PlanCase> cases{
      {"Full", {}},
      {"LayerMajor", {"--budget", "200"}},
      {"ChunkMajor", {"--budget", "200", "--prefill", "chunk-major"}},
      {"PerChunk", {"--budget", "200", "--evict", "per-chunk", "-b", "100"}},
      {"LegacyOrder", {"--budget", "200", "--legacy-order", "-b", "100"}},
      {"BeforeQuestion", {"--budget", "200", "--evict", "before-question"}},
      {"BeforeQuestionInPercent", {"--budget", "10%", "--evict", "before-question"}},
      {"Slack", {"--policy", "knorm:budget=200,slack=50"}},
      {"Bytes", {"--budget", "64KiB", "--cache-type-k", "f32"}},
      {"SmallBatch", {"--budget", "200", "-b", "3"}},
      {"BudgetBeyondThePrompt", {"--budget", "3000"}},
      {"HeadsShare", {"--policy", "knorm+adakv:budget=200"}},
      {"HeadsSharePerChunk",
       {"--policy", "knorm+adakv:budget=200", "--evict", "per-chunk", "-b", "100"}},
      {"LayersTaper", {"--policy", "knorm+pyramid:budget=200"}},
      {"LayersTaperAndHeadsShare",
       {"--policy", "knorm+pyramid+adakv:budget=200,slack=9", "--evict", "before-question"}},
      {"QueriesAreRemembered", {"--policy", "snapkv:budget=200"}},
      {"QueriesAreCounted", {"--policy", "expected-attention:budget=200"}},
      {"Replay", {"--policy", "kvzip:budget=200,replay_chunk=300"}},
      {"ReplayBeforeQuestion",
       {"--policy", "kvzip+uniform:budget=200", "--evict", "before-question"}},
      {"AllShare", {"--policy", "knorm+pool:budget=200", "--evict", "before-question"}},
  };
  return cases;
}

class Plan : public testing::TestWithParam<PlanCase> {};

void expect_near(const json& planned, const json& actual, const char* what) {
  const double size = actual;
  EXPECT_NEAR(planned.get<double>(), size, 0.05 * size) << what;
}

// `prompt` holds -f and -p.
void expect_plan_holds(const Args& prompt, const Args& flags) {
  const Args args = joined(joined(prompt, {"-n", "80"}), flags);
  const json plan = tiny_json(joined(args, {"--dry-run"}));
  const json report = tiny_json(args);
  EXPECT_EQ(plan["policy"], report["policy"]);
  EXPECT_EQ(plan["prefill"], report["prefill"]);
  EXPECT_EQ(plan["budget_rows"], report["budget_rows"]);
  EXPECT_EQ(plan["row_bytes"], report["row_bytes"]);
  EXPECT_LE(report["kept_rows"]["max"], plan["max_rows"]);
  expect_near(plan["kv_bytes"]["peak"], report["kv_bytes"]["peak"], "kv_bytes.peak");
  expect_near(plan["kv_bytes"]["full_cache"], report["kv_bytes"]["full_cache"], "full_cache");
  expect_near(plan["residual_bytes"], report["residual_bytes"], "residual_bytes");
  expect_near(plan["compute_bytes"], report["compute_bytes"], "compute_bytes");
  EXPECT_EQ(plan["policy_bytes"], report["policy_bytes"]);
  expect_near(plan["peak_bytes"], report["peak_bytes"], "peak_bytes");
}

TEST_P(Plan, HoldsForALongDocument) {
  expect_plan_holds({"-f", document(500), "-p", "What is this about?"}, GetParam().args);
}

TEST_P(Plan, HoldsForAShortDocument) {
  expect_plan_holds({"-f", document(5), "-p", "What is this about?"}, GetParam().args);
}

TEST_P(Plan, TextSaysTheSame) {
  const Args args =
      joined({"-f", document(500), "-p", "Why?", "-n", "80", "--dry-run"}, GetParam().args);
  const json plan = tiny_json(args);
  const Outcome text = run_winnow(tiny_run(args));
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.err, "");
  const json rows = plan["budget_rows"];
  const std::string budget = rows.is_null() ? "no budget" : rows.dump() + " rows per KV head";
  for (const std::string& part :
       {"plan: " + plan["policy"].get<std::string>(), budget, plan["prefill"].get<std::string>(),
        std::string("at the peak"), std::string("the full cache would be")}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in: " << text.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Plan, testing::ValuesIn(plan_cases()),
                         [](const auto& instance) { return instance.param.name; });

// What is planned for a run whose borders are close.
void expect_rows_and_memory(const Args& args) {
  Args dry = args;
  dry.push_back("--dry-run");
  const json plan = tiny_json(dry);
  const json report = tiny_json(args);
  EXPECT_EQ(plan["kv_bytes"]["peak"], report["kv_bytes"]["peak"]);
  EXPECT_EQ(plan["kv_bytes"]["full_cache"], report["kv_bytes"]["full_cache"]);
  expect_near(plan["compute_bytes"], report["compute_bytes"], "compute_bytes");
  expect_near(plan["peak_bytes"], report["peak_bytes"], "peak_bytes");
}

TEST(PlanBorders, ToTheEndOfTheContext) {
  expect_rows_and_memory({"--ids", "1,2,3", "-c", "6"});
  expect_rows_and_memory({"--ids", "1,2,3", "-c", "3"});
}

TEST(PlanBorders, NothingIsDecoded) {
  for (const std::string n_predict : {"0", "1"}) {
    expect_rows_and_memory({"--ids", "1,2,3", "-n", n_predict});
  }
}

TEST(PlanBorders, LogitsOfAllPositions) {
  expect_rows_and_memory({"-f", document(100), "-n", "2", "-b", "16", "--logits-all",
                          "--dump-logits", temporary_path("planned")});
}

// Attention needs more scratch beyond position 4096, where its blocks grow.
TEST(PlanBorders, TheAnswerPassesALongerBlock) {
  std::string ids = "1";
  for (int i = 1; i < 4090; ++i) {
    ids += ",1";
  }
  expect_rows_and_memory({"--ids", ids, "-n", "20", "-b", "8", "--evict", "per-chunk", "--budget",
                          "64", "--allow-beyond-context"});
}

// --- dumps

TEST(DumpKept, PositionsAscendAndHoldSinksAndRecentRows) {
  const std::string path = temporary_path("kept.json");
  const json report = tiny_json({"-f", document(100), "-n", "20", "--policy",
                                 "knorm:budget=50,n_sink=4,n_recent=10", "--dump-kept", path});
  const json dump = json::parse(read_text_file(path));
  const int fed = report["positions_fed"];
  EXPECT_EQ(dump["policy"], report["policy"]);
  EXPECT_EQ(dump["positions_fed"], fed);
  ASSERT_EQ(dump["kept_positions"].size(), 2U);
  bool has_row_between = false;
  for (const json& layer : dump["kept_positions"]) {
    ASSERT_EQ(layer.size(), 2U);
    for (const json& head : layer) {
      const std::vector<int> kept = head;
      ASSERT_EQ(kept.size(), 50U);
      EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), std::less_equal<>()));  // no equals
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(kept[static_cast<size_t>(i)], i);
      }
      for (int i = 1; i <= 10; ++i) {
        EXPECT_EQ(kept[50 - static_cast<size_t>(i)], fed - i);
      }
      has_row_between = has_row_between || kept[39] - kept[4] != 35;
    }
  }
  EXPECT_TRUE(has_row_between) << "the method chose nothing";
}

TEST(DumpKept, FullCacheHoldsAll) {
  const std::string path = temporary_path("all.json");
  const json report = tiny_json({"-p", "hello", "-n", "5", "--dump-kept", path});
  const json dump = json::parse(read_text_file(path));
  std::vector<int> all(report["positions_fed"].get<size_t>());
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<int>(i);
  }
  EXPECT_EQ(dump["kept_positions"][1][1].get<std::vector<int>>(), all);
}

// What exists and is not a file is written to: replacing /dev/null would be a surprise.
TEST(DumpKept, DoesNotReplaceAPipe) {
  const std::string path = temporary_path("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  Program reader("/bin/cat", {path}, {});
  const Outcome run = run_winnow(tiny_run({"-p", "hello", "-n", "1", "-q", "--dump-kept", path}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_TRUE(json::parse(reader.wait().out).contains("kept_positions"));
}

TEST(DumpKept, GoesWhereALinkLeads) {
  const std::string path = temporary_path("linked");
  const std::string link = temporary_path("link");
  std::ofstream(path) << "old";
  std::filesystem::create_symlink(path, link);
  tiny_json({"-p", "hello", "-n", "1", "--dump-kept", link});
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(json::parse(read_text_file(path)).contains("kept_positions"));
}

TEST(DumpKept, LeavesNothingBesideTheFile) {
  const std::filesystem::path folder = temporary_path("dumps");
  std::filesystem::create_directory(folder);
  tiny_json({"-p", "hello", "-n", "2", "--dump-kept", folder / "kept", "--dump-logits",
             folder / "logits"});
  const auto n_files = std::distance(std::filesystem::directory_iterator(folder), {});
  EXPECT_EQ(n_files, 2);
}

struct Npy {
  size_t n_rows = 0;
  size_t n_columns = 0;
  std::vector<float> values;
};

// Reads what NumPy would, for this one type.
Npy read_npy(const std::string& path) {
  const std::string file = read_text_file(path);
  EXPECT_EQ(file.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header_size =
      static_cast<unsigned char>(file[8]) + 256U * static_cast<unsigned char>(file[9]);
  EXPECT_EQ((10 + header_size) % 64, 0U);
  const std::string header = file.substr(10, header_size);
  EXPECT_EQ(header.back(), '\n');
  EXPECT_NE(header.find("'descr': '<f4'"), std::string::npos) << header;
  EXPECT_NE(header.find("'fortran_order': False"), std::string::npos) << header;
  Npy npy;
  EXPECT_EQ(std::sscanf(header.c_str() + header.find("'shape': ("), "'shape': (%zu, %zu)",
                        &npy.n_rows, &npy.n_columns),
            2);
  npy.values.resize(npy.n_rows * npy.n_columns);
  EXPECT_EQ(file.size() - 10 - header_size, npy.values.size() * sizeof(float));
  std::memcpy(npy.values.data(), file.data() + 10 + header_size,
              std::min(file.size() - 10 - header_size, npy.values.size() * sizeof(float)));
  return npy;
}

TEST(DumpLogits, AreThoseTokensWereChosenFrom) {
  const std::string path = temporary_path("logits.npy");
  const auto answer_to = [](const Args& args) {
    return run_winnow(joined(tiny_run(args), {"-q", "--temp", "0", "--ignore-eos"})).out;
  };
  const std::string answer = answer_to({"--ids", "10,20,30", "-n", "6", "--dump-logits", path});
  const Npy npy = read_npy(path);
  ASSERT_EQ(npy.n_rows, 6U);
  ASSERT_EQ(npy.n_columns, 289U);
  EXPECT_TRUE(std::all_of(npy.values.begin(), npy.values.end(),
                          [](float value) { return std::isfinite(value); }));
  // The likeliest token of the first row, given as part of the prompt, leaves the rest of the answer.
  const auto best = std::max_element(npy.values.begin(), npy.values.begin() + 289);
  const std::string end =
      answer_to({"--ids", "10,20,30," + std::to_string(best - npy.values.begin()), "-n", "5"});
  EXPECT_GT(end.size(), 3U);
  EXPECT_TRUE(answer.ends_with(end));
}

TEST(DumpLogits, OfAllPositions) {
  for (const char* evict : {"after-prompt", "before-question"}) {
    const std::string path = temporary_path(std::string("all-logits-") + evict);
    const json report = tiny_json({"-f", document(30), "-p", "Why?", "-n", "6", "--budget", "40",
                                   "--evict", evict, "--dump-logits", path, "--logits-all"});
    const Npy npy = read_npy(path);
    EXPECT_EQ(npy.n_rows, report["n_prompt"].get<size_t>() + 6 - 1);
    const std::string last_path = temporary_path(std::string("last-logits-") + evict);
    tiny_json({"-f", document(30), "-p", "Why?", "-n", "6", "--budget", "40", "--evict", evict,
               "--dump-logits", last_path});
    const Npy last = read_npy(last_path);
    ASSERT_EQ(last.n_rows, 6U);
    EXPECT_EQ(
        std::memcmp(last.values.data(), npy.values.data() + npy.values.size() - last.values.size(),
                    last.values.size() * sizeof(float)),
        0);
  }
}

}  // namespace
}  // namespace winnow::test
