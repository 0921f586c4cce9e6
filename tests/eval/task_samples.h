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

// A file with prose and settings in it, for tasks that read one. Each test program has its own, as they run together.
class DocumentFile {
 public:
  DocumentFile() : path_(testing::TempDir() + "winnow_eval_" + std::to_string(getpid()) + ".txt") {
    std::ofstream out(path_);
    PythonRandom random(5);
    for (int i = 0; i < 400; ++i) {
      out << "In year " << 1200 + i << " the " << word_pair(random.below(n_word_pairs()))
          << " of the town " << word_pair(random.below(n_word_pairs()))
          << " was sold to someone who\nhad " << random.choice(adjectives()) << " plans for its "
          << random.choice(nouns()) << " and garden.\n";
      out << "setting_" << i << " = " << random.between(100, 99999) << "\n";
    }
  }
  ~DocumentFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline const std::string& document_file() {
  static const DocumentFile file;
  return file.path();
}

// A spec's FILE stands for document_file().
inline std::string with_file(std::string spec) {
  const size_t at = spec.find("FILE");
  return at == std::string::npos ? spec : spec.replace(at, 4, document_file());
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
