// winnow itself, run by the tests of its command line.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/tiny_model.h"

namespace winnow::test {

using Args = std::vector<std::string>;

// Both, one after the other.
inline Args joined(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Exit statuses that users may count on (docs/cli.md).
inline constexpr int kInvalidArgument = 2;
inline constexpr int kNotFound = 3;
inline constexpr int kUnsupported = 4;
inline constexpr int kBadData = 5;
inline constexpr int kResourceExhausted = 6;
inline constexpr int kIo = 7;
inline constexpr int kCancelled = 130;

inline Outcome run_winnow(const Args& args, const ProgramOptions& options = {}) {
  return Program(WINNOW_PROGRAM, args, options).wait();
}

inline Outcome run_winnow(const Args& args, const std::string& input) {
  return run_winnow(args, ProgramOptions{.input = input});
}

// A model of two layers with two KV heads each and 4096 positions.
inline const std::string& tiny_model() {
  static const std::string path = write_tiny_model();
  return path;
}

// `run -m tiny -t 1` and what is given. One thread, since other tests may use the cores.
inline Args tiny_run(const Args& args) {
  return joined({"run", "-m", tiny_model(), "-t", "1"}, args);
}

inline std::string write_text(const std::string& name, const std::string& text) {
  const std::string path = temporary_path(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// English-looking text of so many words, each of four letters and a space.
inline std::string words(int n) {
  constexpr const char* kWords[] = {"than ", "word ", "sing ", "rest ", "land ", "even ", "test "};
  std::string text;
  for (int i = 0; i < n; ++i) {
    text += kWords[(i * i + i / 3) % 7];
  }
  return text;
}

// The path of a document of so many words.
inline std::string document(int n_words) {
  return write_text("document-" + std::to_string(n_words) + ".txt", words(n_words));
}

// Refused: the status, nothing on standard output, one line that contains every one of `parts`.
inline void expect_refused(const Outcome& outcome, int status,
                           const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.status, status);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("winnow: error: ", 0), 0U) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  for (const std::string& part : parts) {
    EXPECT_NE(outcome.err.find(part), std::string::npos)
        << "no \"" << part << "\" in: " << outcome.err;
  }
}

// The JSON of a run that must succeed.
inline nlohmann::json json_of(const Args& args, const std::string& input = "") {
  const Outcome outcome = run_winnow(args, input);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  nlohmann::json json = nlohmann::json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << outcome.out;
  return json;
}

// Of `run` on the tiny model: greedy, no early end.
inline nlohmann::json tiny_json(const Args& args) {
  return json_of(joined(tiny_run(args), {"--json", "--temp", "0", "--ignore-eos"}));
}

}  // namespace winnow::test
