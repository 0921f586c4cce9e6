// Samples for tests, counted by a tokenizer that needs no model.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "eval/prompt_length.h"
#include "eval/random.h"
#include "eval/tasks.h"
#include "eval/words.h"

namespace winnow::eval {

// A word costs a token for each five letters begun, other characters but spaces one each: near what models do.
inline int count_tokens(std::string_view text) {
  int n_tokens = 0;
  int n_letters = 0;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    n_tokens += is_letter ? (n_letters % 5 == 0 ? 1 : 0) : (c == ' ' ? 0 : 1);
    n_letters = is_letter ? n_letters + 1 : 0;
  }
  return n_tokens;
}

inline SampleRequest request_of(int index, int n_tokens, uint64_t seed = 1) {
  return {.index = index,
          .n_tokens = n_tokens,
          .seed = seed,
          .n_template_tokens = 12,
          .count_tokens = count_tokens};
}

// A file for tasks that read one. Each test program has its own, as they run together.
class TestFile {
 public:
  TestFile(const std::string& name, const std::string& text)
      : path_(testing::TempDir() + "winnow_eval_" + std::to_string(getpid()) + name) {
    std::ofstream(path_) << text;
  }
  ~TestFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string drawn_word(PythonRandom& random) {
  return word_pair(random.below(n_word_pairs()));
}

// Prose and settings.
inline std::string document_text() {
  PythonRandom random(5);
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += "In year " + std::to_string(1200 + i) + " the " + drawn_word(random);
    text += " of the town " + drawn_word(random) + " was sold to someone who\nhad ";
    text += random.choice(adjectives()) + " plans for its ";
    text += random.choice(nouns()) + " and garden.\nsetting_" + std::to_string(i) + " = ";
    text += std::to_string(random.between(100, 99999)) + "\n";
  }
  return text;
}

// In SQuAD's form: 60 paragraphs with a question each, and one question without answer.
inline std::string squad_text() {
  PythonRandom random(6);
  std::string text = R"({"data": [{"title": "t", "paragraphs": [)";
  for (int i = 0; i < 60; ++i) {
    const std::string number = std::to_string(i);
    const std::string owner = drawn_word(random);
    text += i == 0 ? "" : ", ";
    text += R"({"context": "Castle )" + number + " belongs to " + owner + ".\\nIt was built by";
    for (int word = 0; word < 40; ++word) {
      text += " " + random.choice(nouns());
    }
    text += R"(.", "qas": [{"question": "Who owns castle )" + number;
    text += R"(?", "answers": [{"text": ")" + owner + R"("}, {"text": ")" + owner + R"("}]}]})";
  }
  return text + R"(, {"context": "Nothing.", "qas": [{"question": "What?", "answers": []}]}]}]})";
}

// A spec's FILE stands for a file of document_text(), SQUAD for one of squad_text().
inline std::string with_file(std::string spec) {
  static const TestFile document(".txt", document_text());
  static const TestFile squad(".json", squad_text());
  for (const auto& [word, path] :
       {std::pair<std::string, std::string>{"FILE", document.path()}, {"SQUAD", squad.path()}}) {
    if (const size_t at = spec.find(word); at != std::string::npos) {
      spec.replace(at, word.size(), path);
    }
  }
  return spec;
}

inline Sample sample_of(std::string_view spec, int index = 0, int n_tokens = 1000,
                        uint64_t seed = 1) {
  return parse_task(with_file(std::string(spec))).task->make(request_of(index, n_tokens, seed));
}

inline double score_of(std::string_view spec, const Sample& sample, std::string_view answer,
                       int question = 0) {
  return parse_task(with_file(std::string(spec))).task->score(sample, question, answer).primary;
}

// Share of the document's characters before the first of `text`; -1 where it does not stand in it.
inline double depth_in(const Sample& sample, std::string_view text) {
  const size_t at = sample.document.find(text);
  return at == std::string::npos
             ? -1
             : static_cast<double>(at) / static_cast<double>(sample.document.size());
}

}  // namespace winnow::eval
