// What an evaluation asks of a model: prompts made from a seed, and the score of an answer. A task knows no model, no
// policy and no cache; it measures lengths with the model's tokenizer through a function that it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::eval {

// How the gold answers of a question are meant.
enum class AnswerRule {
  kAny,  // one is enough: spellings of the same answer
  kAll,  // each is asked for
};

// A document, and what is asked about it.
struct Sample {
  std::string id;        // the same for the same task, options, length, seed and index
  std::string document;  // what is compressed; with the instructions that come before it
  std::vector<std::string> questions;  // at least one, with the form of answer asked for; all are
                                       // asked after one compression of the document
  std::vector<std::vector<std::string>> answers;  // gold answers of each question
  AnswerRule rule = AnswerRule::kAny;
  // Of lists: what the gold answers were chosen among, with them; empty where that is not a list.
  std::vector<std::string> pool;
  // What the prompt ends in for a model without chat template, on a line of its own after the question.
  std::string answer_cue = "Answer:";
  int n_answer_tokens = 0;  // most tokens to generate for an answer
  std::map<std::string, std::string>
      labels;  // what tables and heat maps group by: "depth", "variant"
};

// The text of a perfect answer, whose likelihood grades answers: the first of several spellings, or the list of all.
std::string gold_text(const Sample& sample, int question);

struct SampleRequest {
  int index = 0;              // which sample of the run, from 0
  int n_tokens = 0;           // length of the whole prompt: template, document and first question
  uint64_t seed = 0;          // of the run
  int n_template_tokens = 0;  // what the prompt has beside document and question
  // Tokens of a text on its own, without beginning or end of sequence.
  std::function<int(std::string_view)> count_tokens;
};

// All from 0 to 1.
struct Score {
  double primary = 0;
  std::map<std::string, double>
      secondary;  // "contained", "f1", ...: a name is missing where it means nothing
};

// Const members may be called for several samples at the same time.
class Task {
 public:
  virtual ~Task() = default;

  // The same request gives the same sample on every machine. The prompt has the wanted length within 5 %. Throws
  // invalid_argument where that is too short for what the task puts into it.
  virtual Sample make(const SampleRequest& request) const = 0;

  // `answer` is what the model wrote for questions[question], without end-of-sequence.
  virtual Score score(const Sample& sample, int question, std::string_view answer) const = 0;
};

}  // namespace winnow::eval
