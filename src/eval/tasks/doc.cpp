// doc: answers questions about the user's own file, made from the file.
//
// Source    none: for finding out what a budget costs on one's own documents
// Prompt    an instruction, then the file or a part of it of the wanted length; `questions` of one or more kinds: a word
//           that stands there once is missing, a key's value, what follows the beginning of a sentence
// Draws     random.Random: where the part begins, then for each question which one
// Score     primary: the answer is the file's. contained, f1: the same, less strict. For the loss that a budget brings,
//           compare with the full cache's answers, as not all questions can be answered by all models

#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "eval/document_questions.h"
#include "eval/haystack.h"
#include "eval/prompt_length.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

struct DocOptions {
  std::string file;
  std::string kind = "mixed";
  int questions = 1;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(file, "file", "a text FILE", "the document");
    v(kind, "kind", {"mixed", "cloze", "lookup", "quote"},
      "what is asked for: a missing word, a key's value, how a sentence goes on, or in turn");
    v(questions, "questions", 1, 16, "questions asked one after another about each part");
  }
};

using MakeQuestions = std::vector<DocumentQuestion> (*)(std::string_view);

struct Kind {
  std::string_view name;
  MakeQuestions make;
};
constexpr Kind kKinds[] = {
    {"lookup", lookup_questions}, {"cloze", cloze_questions}, {"quote", quote_questions}};
constexpr int kSmallestPart = 200;  // bytes
constexpr int kMostParts = 8;       // drawn until one gives questions

class Doc final : public Task {
 public:
  explicit Doc(const DocOptions& options)
      : options_(options), text_(read_utf8_file(options.file)) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  // Where the sample's part begins: at the start of a line, with enough text after it.
  size_t draw_start(const SampleRequest& request, PythonRandom& random) const;
  // Of kinds in turn from the sample's index on; a kind that the part has no questions of is passed over.
  std::vector<DocumentQuestion> draw_questions(std::string_view part, int index,
                                               PythonRandom random) const;
  Sample build(const SampleRequest& request, std::string_view part,
               const PythonRandom& random) const;
  // Without questions where the part gives none.
  Sample make_part(const SampleRequest& request, size_t start, const PythonRandom& random) const;

  DocOptions options_;
  std::string text_;
};

size_t Doc::draw_start(const SampleRequest& request, PythonRandom& random) const {
  const double share = random.random();
  const int n_tokens = request.count_tokens(text_);
  if (n_tokens < request.n_tokens) {
    return 0;
  }
  const double spare = 1 - static_cast<double>(request.n_tokens) / n_tokens;
  const auto place = static_cast<size_t>(share * spare * static_cast<double>(text_.size()));
  const size_t line = place == 0 ? std::string::npos : text_.rfind('\n', place - 1);
  const size_t start = line == std::string::npos ? 0 : line + 1;
  // A line that is longer than a part is cut.
  return place - start > text_.size() / 20 ? whole_end(text_, place) : start;
}

std::vector<DocumentQuestion> Doc::draw_questions(std::string_view part, int index,
                                                  PythonRandom random) const {
  std::vector<std::vector<DocumentQuestion>> candidates;
  for (const Kind& kind : kKinds) {
    if (options_.kind == "mixed" || options_.kind == kind.name) {
      if (std::vector<DocumentQuestion> made = kind.make(part); !made.empty()) {
        candidates.push_back(std::move(made));
      }
    }
  }
  std::vector<DocumentQuestion> drawn;
  for (int i = 0; i < options_.questions && !candidates.empty(); ++i) {
    const size_t kind = static_cast<size_t>(index + i) % candidates.size();
    const auto which = random.below(std::ssize(candidates[kind]));
    drawn.push_back(std::move(candidates[kind][static_cast<size_t>(which)]));
    candidates[kind].erase(candidates[kind].begin() + which);
    if (candidates[kind].empty()) {
      candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(kind));
    }
  }
  return drawn;
}

Sample Doc::build(const SampleRequest& request, std::string_view part,
                  const PythonRandom& random) const {
  Sample sample = new_sample(request);
  sample.document = "Read this document. Questions about it will follow.\n\n" + std::string(part);
  for (const DocumentQuestion& each : draw_questions(part, request.index, random)) {
    if (sample.questions.empty()) {
      sample.labels["depth"] =
          rounded_text(static_cast<double>(each.place) / static_cast<double>(part.size()), 2);
    }
    sample.questions.push_back(each.question);
    sample.answers.push_back({each.answer});
    // Two bytes to a token are few, but for names and numbers.
    sample.n_answer_tokens =
        std::max(sample.n_answer_tokens, static_cast<int>(each.answer.size()) / 2 + 16);
  }
  return sample;
}

Sample Doc::make_part(const SampleRequest& request, size_t start,
                      const PythonRandom& random) const {
  const std::string_view rest = std::string_view(text_).substr(start);
  const auto part_of = [&](int n_bytes) {
    return rest.substr(0, whole_end(rest, static_cast<size_t>(n_bytes)));
  };
  const auto built = [&](int n_bytes) {
    Sample sample = build(request, part_of(n_bytes), random);
    if (sample.questions.empty()) {
      sample.questions.emplace_back();  // tells lengths only
    }
    return sample;
  };
  const auto n_rest = static_cast<int>(rest.size());
  const int n_bytes = largest_fitting(request, std::min(kSmallestPart, n_rest), built, n_rest);
  return build(request, part_of(n_bytes), random);
}

Sample Doc::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  Sample sample;
  if (request.n_tokens == 0) {
    sample = build(request, text_, random);
  }
  // A part's questions differ in length, so now and then one is too short.
  for (int i = 0; i < kMostParts && request.n_tokens > 0; ++i) {
    const size_t start = draw_start(request, random);
    sample = make_part(request, start, random);
    if (!sample.questions.empty() && is_reached(request, sample)) {
      break;
    }
  }
  if (sample.questions.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                options_.file + " gives no question of kind " + options_.kind +
                    " (cloze: words that stand there once; lookup: keys that stand there once; "
                    "quote: long sentences)");
  }
  check_reached(request, sample, options_.file);
  return sample;
}

}  // namespace

std::unique_ptr<Task> make_doc(policy::OptionReader& reader) {
  const auto options = read_options_with_file<DocOptions>(reader, "the document to ask about");
  return options ? std::make_unique<Doc>(*options) : nullptr;
}

}  // namespace winnow::eval
