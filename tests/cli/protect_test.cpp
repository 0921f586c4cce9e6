// --protect-text, --protect-tokens, --system and protect= on the command line.

#include "base/files.h"
#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

std::string secret_document() {
  return write_text("secret.txt", words(60) + "The code is 4711-XY. " + words(60));
}

TEST(Protect, ReportsWhatItHolds) {
  const std::string kept = temporary_path("kept.json");
  const json report = tiny_json({"-f", secret_document(), "-p", "What?", "--policy",
                                 "knorm:budget=60,n_sink=2,n_recent=4,protect=question@50%",
                                 "--protect-text", "code is [0-9]+", "--protect-text", "land@1",
                                 "--protect-tokens", "-3:", "-n", "8", "--dump-kept", kept});
  EXPECT_EQ(report["budget_rows"], 60);
  EXPECT_EQ(report["budget_extra_rows"], 0);
  EXPECT_GT(report["protected"]["positions"], report["protected"]["least_rows"]);
  EXPECT_GE(report["protected"]["kept_rows"]["min"], report["protected"]["least_rows"]);
  EXPECT_LE(report["protected"]["kept_rows"]["max"], 60);
  EXPECT_EQ(report["policy"], "knorm:budget=60,n_sink=2,n_recent=4,protect=question@50%");
  const json percent = tiny_json({"-f", secret_document(), "-p", "What?", "--budget", "30%", "-n",
                                  "1", "--protect-text", "4711"});
  EXPECT_EQ(percent["budget_extra_rows"].get<int>(),
            percent["n_prompt"].get<int>() - percent["n_document"].get<int>());
  EXPECT_GT(percent["protected"]["least_rows"], 0);
  const json none = tiny_json({"-f", secret_document(), "--budget", "60", "-n", "1"});
  EXPECT_EQ(none["protected"]["positions"], 0);
}

TEST(Protect, HoldsThroughACacheFile) {
  const std::string cache = temporary_path("protected.cache");
  const Args pins{"--protect-text", "4711-XY", "--protect-tokens", "10:30@50%"};
  const Args compress = joined({"compress", "-m", tiny_model(), "-t", "1", "-f", secret_document(),
                                "--budget", "40", "-o", cache, "--json", "--force"},
                               pins);
  const json compressed = json_of(compress);
  const json asked = tiny_json({"--cache", cache, "-p", "What?", "-n", "20"});
  EXPECT_EQ(asked["protected"]["positions"], compressed["protected"]["positions"]);
  EXPECT_GE(asked["protected"]["kept_rows"]["min"], asked["protected"]["least_rows"]);
  const json again = tiny_json(
      joined({"--cache", cache, "-f", secret_document(), "-p", "What?", "-n", "20"}, pins));
  EXPECT_EQ(again["protected"], asked["protected"]);
}

TEST(Protect, SaysWhatWasEvictedBeforeItWasProtected) {
  const std::string cache = temporary_path("unprotected.cache");
  const Outcome compressed =
      run_winnow({"compress", "-m", tiny_model(), "-t", "1", "-f", secret_document(), "--policy",
                  "streaming:budget=40", "-o", cache});
  ASSERT_EQ(compressed.status, 0) << compressed.err;
  const Outcome asked = run_winnow(tiny_run({"--cache", cache, "-f", secret_document(), "-p",
                                             "What?", "-n", "1", "--protect-tokens", "10:30"}));
  EXPECT_EQ(asked.status, 0);
  EXPECT_NE(asked.err.find("0 of 20 protected rows among them"), std::string::npos) << asked.err;
}

TEST(Protect, WarnsWhereNothingMatches) {
  const Outcome outcome = run_winnow(tiny_run(
      {"-f", secret_document(), "--budget", "60", "-n", "1", "--protect-text", "nowhere"}));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find("nowhere matches nothing in the document"), std::string::npos)
      << outcome.err;
}

TEST(Protect, RefusesWhatCannotBe) {
  const Args run = tiny_run({"-f", secret_document(), "--budget", "60"});
  const auto refused = [&](const Args& more, const std::vector<std::string>& parts) {
    expect_refused(run_winnow(joined(run, more)), kInvalidArgument, parts);
  };
  refused({"--protect-text", "("}, {"--protect-text (", "missing )"});
  refused({"--protect-text", "a@0"}, {"the floor '0'"});
  refused({"--protect-tokens", "5"}, {"--protect-tokens 5", "a:b"});
  refused({"--protect-tokens", "5000:"}, {"5000 is beyond the"});
  refused({"--protect-tokens", "-5000:"}, {"-5000 is beyond the"});
  refused({"--protect-text", ".+"}, {"protected rows of the prompt", "a budget of 60 rows"});
  refused({"--policy", "knorm:protect=sytem"}, {"protect=sytem", "did you mean 'system'"});
  refused({"--system", "x", "--no-chat"}, {"--system", "no place"});
  refused({"--system", ""}, {"--system", "empty"});
  expect_refused(run_winnow(tiny_run({"-f", secret_document(), "--protect-text", "code"})),
                 kInvalidArgument, {"keeps every row", "--budget"});
  const Args ids = tiny_run({"--ids", "1,2,3,4,5,6,7,8,9,10", "--budget", "8"});
  expect_refused(run_winnow(joined(ids, {"--protect-text", "x"})), kInvalidArgument,
                 {"--ids has no text"});
  expect_refused(run_winnow(joined(ids, {"--system", "x"})), kInvalidArgument,
                 {"--ids has no text"});
  EXPECT_EQ(run_winnow(joined(ids, {"--protect-tokens", "7:8", "-n", "1"})).status, 0);

  const std::string cache = temporary_path("plain.cache");
  ASSERT_EQ(run_winnow({"compress", "-m", tiny_model(), "-t", "1", "-f", secret_document(),
                        "--budget", "40", "-o", cache})
                .status,
            0);
  expect_refused(run_winnow(tiny_run({"--cache", cache, "-p", "x", "--protect-text", "x"})),
                 kInvalidArgument, {"goes on without one"});
  expect_refused(run_winnow(tiny_run({"--cache", cache, "-p", "x", "--system", "x"})),
                 kInvalidArgument, {"before the first turn"});
}

TEST(Protect, KeepsASystemMessage) {
  const std::string kept = temporary_path("kept.json");
  const json report =
      tiny_json({"-f", secret_document(), "-p", "What?", "--chat-template", "chatml", "--system",
                 "Answer in one word.", "--policy", "streaming:budget=40,n_sink=0,protect=system",
                 "-n", "8", "--dump-kept", kept});
  const int n_system = report["protected"]["positions"];
  EXPECT_GT(n_system, 5);
  EXPECT_EQ(report["protected"]["kept_rows"]["min"], n_system);
  EXPECT_LT(report["n_document"].get<int>() + n_system, report["n_prompt"].get<int>());
}

}  // namespace
}  // namespace winnow::test
