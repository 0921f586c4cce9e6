// Samples for tests, counted by a tokenizer that needs no model.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

// 300 records in an array.
inline std::string json_text() {
  PythonRandom random(8);
  std::string text = R"({"kind": "list", "records": [)";
  for (int i = 0; i < 300; ++i) {
    text += i == 0 ? "" : ", ";
    text += R"({"name": ")" + drawn_word(random) + R"(", "size": )" +
            std::to_string(random.between(100, 99999)) + R"(, "tags": [")" +
            random.choice(nouns()) + R"(", ")" + random.choice(adjectives()) + R"("]})";
  }
  return text + "]}";
}

// 300 elements with attributes of their own, a line each.
inline std::string xml_text() {
  PythonRandom random(9);
  std::string text = "<list>\n";
  for (int i = 0; i < 300; ++i) {
    const std::string name = random.choice(nouns()) + std::to_string(i);
    text += "  <" + name + " size=\"" + std::to_string(random.between(100, 99999)) + "\">" +
            drawn_word(random) + "</" + name + "><row/>\n";
  }
  return text + "</list>\n";
}

// A list of questions, each about a table of its own that stands beside it.
class TableFiles {
 public:
  TableFiles() {
    PythonRandom random(10);
    std::string list = "id\tutterance\tcontext\ttargetValue\n";
    for (int i = 0; i < 60; ++i) {
      std::string text = "boat,owner,length\n";
      std::string owner;
      for (int row = 0; row < 8; ++row) {
        owner = drawn_word(random);
        text += "boat " + std::to_string(10 * i + row) + "," + owner + "," +
                std::to_string(random.between(3, 30)) + "\n";
      }
      tables_.push_back(std::make_unique<TestFile>("table" + std::to_string(i) + ".csv", text));
      const std::string& path = tables_.back()->path();
      list += "q-" + std::to_string(i) + "\twho owns boat " + std::to_string(10 * i + 7) + "?\t" +
              path.substr(path.rfind('/') + 1) + "\t" + owner + "\n";
    }
    list_ = std::make_unique<TestFile>("tables.tsv", list);
  }
  const std::string& path() const { return list_->path(); }

 private:
  std::vector<std::unique_ptr<TestFile>> tables_;
  std::unique_ptr<TestFile> list_;
};

// A spec's FILE stands for a file of document_text(), SQUAD for one of squad_text(), RECORDS of json_text(), ELEMENTS of
// xml_text(), TABLES for the list of TableFiles.
inline std::string with_file(std::string spec) {
  static const TestFile document(".txt", document_text());
  static const TestFile squad(".json", squad_text());
  static const TestFile records(".records.json", json_text());
  static const TestFile elements(".xml", xml_text());
  static const TableFiles tables;
  for (const auto& [word, path] : {std::pair<std::string, std::string>{"FILE", document.path()},
                                   {"SQUAD", squad.path()},
                                   {"RECORDS", records.path()},
                                   {"ELEMENTS", elements.path()},
                                   {"TABLES", tables.path()}}) {
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
