// --min-kept and --on-low-kept: what is said where a policy leaves fewer rows than it should.

#include <filesystem>

#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

Args run_with(const Args& more) {
  return joined(tiny_run({"-f", document(100), "-p", "Why?", "-n", "8", "--temp", "0",
                          "--ignore-eos", "--json", "--policy", "knorm:budget=50"}),
                more);
}

// Of the rows that would be there, those that are.
double kept_share() {
  const nlohmann::json report = json_of(run_with({}));
  const nlohmann::json& bytes = report["kv_bytes"];
  return bytes["now"].get<double>() / bytes["full_cache"].get<double>();
}

TEST(MinKept, SpeaksWhereFewerRowsAreLeftAndNowhereElse) {
  const double share = kept_share();
  ASSERT_GT(share, 0.1);
  ASSERT_LT(share, 0.9);
  const Outcome plain = run_winnow(run_with({}));
  for (const std::string& enough : {std::string("0"), std::to_string(share - 1e-4)}) {
    for (const char* const reaction : {"warn", "fail", "ignore"}) {
      const Outcome quiet = run_winnow(run_with({"--min-kept", enough, "--on-low-kept", reaction}));
      EXPECT_EQ(quiet.status, 0) << quiet.err;
      EXPECT_EQ(quiet.err.find("--min-kept"), std::string::npos) << quiet.err;
    }
  }
  const Outcome warned = run_winnow(run_with({"--min-kept", std::to_string(share + 1e-4)}));
  EXPECT_EQ(warned.status, 0);
  const size_t first = warned.err.find("less than --min-kept");
  ASSERT_NE(first, std::string::npos) << warned.err;
  EXPECT_EQ(warned.err.find("less than --min-kept", first + 1), std::string::npos) << "said twice";
  EXPECT_NE(warned.err.find("policy 'knorm:budget=50' left"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(warned.out)["answer"],
            nlohmann::json::parse(plain.out)["answer"]);
  const Outcome ignored = run_winnow(run_with({"--min-kept", "1", "--on-low-kept", "ignore"}));
  EXPECT_EQ(ignored.status, 0);
  EXPECT_EQ(ignored.err.find("--min-kept"), std::string::npos);
}

TEST(MinKept, FailsBeforeFilesAreWritten) {
  const std::string path = temporary_path("min-kept.cache");
  const Args fail{"--min-kept", "0.9", "--on-low-kept", "fail"};
  const Outcome run = run_winnow(run_with(joined(fail, {"--save-cache", path})));
  EXPECT_EQ(run.status, kInvalidArgument);
  EXPECT_NE(run.err.find("policy 'knorm:budget=50' left"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("less than --min-kept 0.9"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(path));
  const Outcome compress = run_winnow(joined({"compress", "-m", tiny_model(), "-f", document(100),
                                              "-t", "1", "-o", path, "--policy", "knorm:budget=50"},
                                             fail));
  EXPECT_EQ(compress.status, kInvalidArgument);
  EXPECT_NE(compress.err.find("less than --min-kept 0.9"), std::string::npos) << compress.err;
  EXPECT_FALSE(std::filesystem::exists(path));
}

// A full cache leaves all.
TEST(MinKept, AFullCacheIsNeverTooSmall) {
  const Outcome full = run_winnow(tiny_run(
      {"-f", document(100), "-p", "Why?", "-n", "8", "--min-kept", "1", "--on-low-kept", "fail"}));
  EXPECT_EQ(full.status, 0) << full.err;
}

TEST(MinKept, RefusesWhatIsNoShareAndNoReaction) {
  for (const char* const share : {"-0.1", "1.1", "nan", "half"}) {
    const Outcome outcome = run_winnow(run_with({"--min-kept", share}));
    EXPECT_EQ(outcome.status, kInvalidArgument) << share;
    EXPECT_NE(outcome.err.find("--min-kept"), std::string::npos) << outcome.err;
  }
  expect_refused(run_winnow(run_with({"--min-kept", "0.5", "--on-low-kept", "shout"})),
                 kInvalidArgument, {"--on-low-kept", "warn", "fail", "ignore"});
}

}  // namespace
}  // namespace winnow::test
