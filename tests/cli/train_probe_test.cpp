// winnow train-probe, and --roles probe:FILE where roles are used.

#include <filesystem>

#include "base/files.h"
#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

// Trained on a few small documents.
std::string some_probe(const Args& more = {}) {
  static int n = 0;
  std::string path = temporary_path("probe-" + std::to_string(++n));
  const Outcome outcome =
      run_winnow(joined({"train-probe", "schema", "-m", tiny_model(), "-o", path, "-n", "5",
                         "--length", "512", "--other", "schema:format=csv"},
                        more));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return path;
}

TEST(TrainProbe, SaysHowRightTheProbeIs) {
  const std::string path = temporary_path("measured.probe");
  const std::string document = write_text("own.json", "{\"alpha_1\": {\"beta_2\": \"x7\"}}");
  const Args args{"train-probe", "schema;schema:format=compact",
                  "-m",          tiny_model(),
                  "-o",          path,
                  "-n",          "10",
                  "--length",    "512",
                  "-f",          document};
  const Outcome outcome = run_winnow(joined(args, {"--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["probe"], path);
  EXPECT_GT(report["n_tokens"], 10 * 2 * 400);
  EXPECT_LE(report["bytes"], std::filesystem::file_size(path));
  std::vector<std::string> names;
  for (const json& part : report["parts"]) {
    names.push_back(part["name"]);
    EXPECT_GE(part["accuracy"], 0);
    EXPECT_LE(part["accuracy"], 1);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"schema", "schema:format=compact",
                                             "schema:format=xml-attributes", "schema:format=yaml",
                                             "schema:format=csv", document, "questions"}));
  const json& held_out = report["parts"][0];
  EXPECT_EQ(held_out["is_trained"], true);
  EXPECT_GT(held_out["accuracy"], 0.97);
  EXPECT_GT(held_out["f1"]["KEY"], 0.97);
  EXPECT_EQ(held_out["f1"]["HEADER"], nullptr) << "there are none";
  EXPECT_GT(held_out["accuracy"], report["parts"][4]["accuracy"]) << "CSV was not trained on";
  EXPECT_EQ(report["parts"].back()["n_key_said"], 0) << "a question has a segment of its own";

  const json ids = json::parse(run_winnow(joined(args, {"--json", "--no-block-features"})).out);
  EXPECT_EQ(ids["has_block_features"], false);
  EXPECT_LT(ids["parts"][0]["accuracy"], held_out["accuracy"]);
  EXPECT_NE(run_winnow(args).out.find("KEY F1"), std::string::npos);
}

TEST(TrainProbe, RefusesWhatCannotBe) {
  const auto refused = [](const Args& args, int status, const std::vector<std::string>& parts) {
    expect_refused(run_winnow(joined({"train-probe", "-m", tiny_model()}, args)), status, parts);
  };
  const std::string path = temporary_path("refused.probe");
  refused({"-o", path, "schemata"}, kInvalidArgument, {"schemata", "schema"});
  refused({"-o", path, "-f", "/nowhere/at-all"}, kNotFound, {"/nowhere/at-all"});
  refused({"-o", "/nowhere/probe"}, kIo, {"/nowhere"});
  refused({"-o", tiny_model()}, kInvalidArgument, {tiny_model()});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ProbeRoles, AreUsedWhereRolesAre) {
  const std::string probe = some_probe();
  const std::string document =
      write_text("probed.json",
                 "{\n  \"alpha_1\": {\n    \"beta_2\": \"x7ab\",\n    \"gamma_3\": \"kk\"\n  }\n}");
  const auto kept = [&](const std::string& roles) {
    const std::string path = temporary_path("kept-by-role.json");
    const Outcome outcome =
        run_winnow(tiny_run({"-f", document, "-p", "What?", "-n", "1", "--roles", roles, "--policy",
                             "knorm+roles:budget=24,n_recent=2,roles=value-only,protect=question",
                             "--dump-kept", path}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? json::parse(read_text_file(path)) : json();
  };
  EXPECT_EQ(kept("probe:" + probe), kept("json")) << "it says what the labeller says";
  EXPECT_NE(kept("probe:" + probe), kept("none"));

  expect_refused(run_winnow(tiny_run({"-f", document, "--roles", "probe:/nowhere/at-all"})),
                 kNotFound, {"/nowhere/at-all"});
  expect_refused(run_winnow(tiny_run({"-f", document, "--roles", "probe:" + document})), kBadData,
                 {document});
  const std::string other = write_tiny_model({.sentencepiece = true});
  expect_refused(run_winnow({"run", "-m", other, "-f", document, "--roles", "probe:" + probe}),
                 kInvalidArgument, {"for a vocabulary of", "winnow train-probe"});
}

TEST(ProbeRoles, AreNamedByTheirDigestInResults) {
  const std::string probe = some_probe();
  const std::string folder = temporary_path("probed-results");
  const Outcome outcome = run_winnow({"eval", "schema", "-m", tiny_model(), "-t", "1", "-n", "1",
                                      "--lengths", "256", "--policy", "knorm+roles", "--budgets",
                                      "60", "--roles", "probe:" + probe, "-o", folder, "-q"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json config = json::parse(read_text_file(folder + "/config.json"));
  const std::string name = config["roles"];
  EXPECT_EQ(name.size(), std::string("probe:").size() + 16) << name;
  EXPECT_TRUE(name.starts_with("probe:"));
}

}  // namespace
}  // namespace winnow::test
