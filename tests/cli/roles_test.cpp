// winnow roles: spans and shares of a text, and agreement with independent parsers.

#include <cstdlib>
#include <filesystem>

#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

TEST(Roles, PrintsSpansAndShares) {
  const Outcome outcome = run_winnow({"roles", write_text("roles.json", "{\"a\": [1]}"), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["format"], "auto");
  EXPECT_EQ(json["bytes"], 10);
  EXPECT_EQ(json["roles"]["KEY"]["bytes"], 3);
  EXPECT_EQ(json["roles"]["KEY"]["share"], 0.3);
  EXPECT_EQ(json["languages"]["json"], 10);
  EXPECT_EQ(json["spans"][1], (nlohmann::json{{"start", 1},
                                              {"end", 4},
                                              {"role", "KEY"},
                                              {"depth", 1},
                                              {"in_string", true},
                                              {"block", 1},
                                              {"language", "json"}}));
}

TEST(Roles, ReadsStandardInputInAnyFormat) {
  const Outcome outcome = run_winnow({"roles", "-", "--roles", "csv"}, "a,b\n1,2\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("HEADER          2 bytes  25.00 %"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("formats: csv 100.0 %"), std::string::npos) << outcome.out;
}

TEST(Roles, LabelsAnEmptyText) {
  const Outcome outcome = run_winnow({"roles", "-", "--json"}, "");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["spans"].size(), 0U);
}

TEST(Roles, ColorsTheWholeText) {
  const Outcome outcome = run_winnow({"roles", "-", "--color"}, "{\"a\": \x1b[2J1}");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\033[36m\"a\""), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("\033[2J"), std::string::npos) << "the text commands the terminal";
}

TEST(Roles, KeepsControlCharactersOfTwoBytesFromTheTerminal) {
  const Outcome outcome = run_winnow({"roles", "-", "--color"},
                                     "{\"a\": \"\xc2\x9b"
                                     "2J\xc2\xa0\"}");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("\xc2\x9b"), std::string::npos) << "the text commands the terminal";
  EXPECT_NE(outcome.out.find("?2J\xc2\xa0"), std::string::npos) << outcome.out;
}

TEST(Roles, WritesAPage) {
  const Outcome outcome = run_winnow({"roles", "-", "--html"}, "<item b=\"c\">&amp;</item>");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("<span class=\"VALUE\" title=\"VALUE depth 1 xml\">&amp;amp;</span>"),
            std::string::npos)
      << outcome.out;
}

TEST(Roles, LabelsTheTokensOfAModel) {
  const std::string text = "{\"a\": [\"b c\"]}";
  const std::string of_bytes = "DKKKD_DVVVVVDD";
  constexpr std::string_view kPrecedence = "KHVDP_";
  const Outcome outcome =
      run_winnow({"roles", "-", "-m", tiny_model(), "--tokens", "--json"}, text);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["n_tokens"], json["tokens"].size());
  int n_keys = 0;
  int n_mixed = 0;
  size_t at = 0;
  for (const nlohmann::json& token : json["tokens"]) {
    EXPECT_EQ(token["start"], at);
    const std::string bytes = of_bytes.substr(at, token["end"].get<size_t>() - at);
    at += bytes.size();
    const char first =
        std::ranges::min(bytes, {}, [&](char role) { return kPrecedence.find(role); });
    const std::string role = token["role"];
    EXPECT_EQ(role == "WS" ? '_' : role[0], first) << bytes;
    n_mixed += bytes.find_first_not_of(bytes[0]) != std::string::npos ? 1 : 0;
    n_keys += first == 'K' ? 1 : 0;
  }
  EXPECT_EQ(at, text.size());
  EXPECT_GT(n_mixed, 0) << "tokens of this vocabulary join a brace and a quote";
  EXPECT_EQ(json["roles"]["KEY"]["n_tokens"], n_keys);
  expect_refused(run_winnow({"roles", "-", "--tokens"}, "x"), kInvalidArgument, {"--tokens", "-m"});
  expect_refused(run_winnow({"roles", "-", "-m", tiny_model()}, "x"), kInvalidArgument,
                 {"--tokens"});
}

TEST(Roles, RefusesUnknownFormatsAndFiles) {
  expect_refused(run_winnow({"roles", "-", "--roles", "jsno"}), kInvalidArgument,
                 {"unknown format 'jsno'", "json"});
  expect_refused(run_winnow({"roles", "/nowhere/at-all"}), kNotFound, {"/nowhere/at-all"});
  expect_refused(run_winnow({"roles", "/"}), kIo, {"/"});
  expect_refused(run_winnow({"roles", "-", "--roles", "json", "--roles-paper"}), kInvalidArgument,
                 {"--roles", "--roles-paper"});
  EXPECT_EQ(run_winnow({"roles", "/", "--json"}).out, "") << "half of a JSON object";
}

TEST(Parsers, AgreeWithLabels) {
  if (!std::filesystem::is_directory(WINNOW_DOCUMENTS)) {
    GTEST_SKIP() << "no documents in " << WINNOW_DOCUMENTS;
  }
  const char* const python = std::getenv("WINNOW_PYTHON");
  const std::string path = python != nullptr ? python : "/usr/bin/python3";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no " << path;
  }
  const Outcome outcome =
      Program(path,
              {WINNOW_SOURCE_FOLDER "/tests/cli/parsers.py", WINNOW_PROGRAM, WINNOW_DOCUMENTS}, {})
          .wait();
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  const size_t missing = outcome.out.find("not compared with");
  if (missing != std::string::npos) {
    GTEST_SKIP() << outcome.out.substr(missing)
                 << "(CONTRIBUTING.md says how to install them; WINNOW_PYTHON names the Python)";
  }
}

}  // namespace
}  // namespace winnow::test
