// schema-doc: looks something up in the user's own JSON or XML file.
//
// Source    none: what a budget costs on the documents that schema's objects stand for
// Prompt    a part of the file of the wanted length, alone: of JSON scalars in a row, each in what contains it, indented; of XML
//           lines in a row. Questions of one or more kinds: what stands at a path (of XML: in an element), how many there
//           are of something, what an attribute is (of XML only)
// Draws     random.Random: where the part begins, then for each question which one
// Score     primary: the answer is the file's. contained, f1

#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "eval/haystack.h"
#include "eval/prompt_length.h"
#include "eval/scoring.h"
#include "eval/structure_questions.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;

constexpr int kMostParts = 32;     // drawn until one has the length and gives questions
constexpr int kDeepestJson = 256;  // levels
constexpr int kAnswerTokens = 24;  // beside the answer's own

struct SchemaDocOptions {
  std::string file;
  std::string kind = "mixed";
  int questions = 1;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(file, "file", "a JSON or XML FILE", "the document");
    v(kind, "kind", {"mixed", "value", "count", "attribute"},
      "what is asked for: what stands at a place, how many there are, an attribute, or in turn");
    v(questions, "questions", 1, 16, "questions asked one after another about each part");
  }
};

struct Kind {
  std::string_view name;
  StructureKind kind;
};
constexpr Kind kKinds[] = {{"value", StructureKind::kValue},
                           {"count", StructureKind::kCount},
                           {"attribute", StructureKind::kAttribute}};

// A document that parts are taken from: runs of its units.
class Source {
 public:
  virtual ~Source() = default;
  virtual int n_units() const = 0;
  virtual std::string text(int begin, int end) const = 0;
  virtual std::vector<StructureQuestion> questions(int begin, int end) const = 0;
};

class JsonSource final : public Source {
 public:
  JsonSource(const std::string& path, const std::string& text) {
    const auto check_depth = [&path](int depth, ordered_json::parse_event_t, ordered_json&) {
      if (depth > kDeepestJson) {
        throw Error(ErrorCode::kBadData,
                    path + " is nested deeper than " + std::to_string(kDeepestJson) + " levels");
      }
      return true;
    };
    try {
      document_ = ordered_json::parse(text, check_depth);
    } catch (const ordered_json::exception& error) {
      throw Error(ErrorCode::kBadData,
                  path + " begins as JSON does, and is none: " + std::string(error.what()));
    }
  }

  int n_units() const override { return n_scalars(document_); }
  std::string text(int begin, int end) const override {
    return part_of(document_, begin, end).dump(2);
  }
  std::vector<StructureQuestion> questions(int begin, int end) const override {
    return json_questions(part_of(document_, begin, end));
  }

 private:
  ordered_json document_;
};

class XmlSource final : public Source {
 public:
  explicit XmlSource(std::string text) : text_(std::move(text)) {
    for (size_t at = 0; at < text_.size(); at = std::min(text_.find('\n', at), text_.size()) + 1) {
      lines_.push_back(at);
    }
    lines_.push_back(text_.size());
  }

  int n_units() const override { return static_cast<int>(lines_.size()) - 1; }
  std::string text(int begin, int end) const override {
    const size_t at = lines_[static_cast<size_t>(begin)];
    return text_.substr(at, lines_[static_cast<size_t>(end)] - at);
  }
  std::vector<StructureQuestion> questions(int begin, int end) const override {
    return xml_questions(text(begin, end));
  }

 private:
  std::string text_;
  std::vector<size_t> lines_;  // where they begin, and the end
};

std::unique_ptr<Source> open_source(const std::string& path) {
  const std::string text = read_utf8_file(path);
  const std::string_view content = trim(text);
  if (content.starts_with('<')) {
    return std::make_unique<XmlSource>(text);
  }
  if (content.starts_with('{') || content.starts_with('[')) {
    return std::make_unique<JsonSource>(path, text);
  }
  throw Error(ErrorCode::kBadData, path + " is neither JSON nor XML");
}

class SchemaDoc final : public Task {
 public:
  explicit SchemaDoc(const SchemaDocOptions& options)
      : options_(options), source_(open_source(options.file)) {
    n_units_ = source_->n_units();
  }

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  struct Part {
    int begin;
    int end;
  };
  // n units from `begin` on, or as near to it as there are so many.
  Part part(int begin, int n) const {
    const int first = std::clamp(begin, 0, n_units_ - n);
    return {first, first + n};
  }
  Sample build(const SampleRequest& request, const Part& part, PythonRandom random) const;
  // Without questions where the part gives none.
  Sample make_part(const SampleRequest& request, int begin, const PythonRandom& random) const;

  SchemaDocOptions options_;
  std::unique_ptr<Source> source_;
  int n_units_ = 0;
};

Sample SchemaDoc::build(const SampleRequest& request, const Part& part, PythonRandom random) const {
  Sample sample = new_sample(request);
  sample.document = source_->text(part.begin, part.end);
  std::vector<std::vector<StructureQuestion>> candidates;
  std::vector<StructureQuestion> all = source_->questions(part.begin, part.end);
  for (const Kind& kind : kKinds) {
    std::vector<StructureQuestion> of_kind;
    std::ranges::copy_if(all, std::back_inserter(of_kind), [&](const StructureQuestion& each) {
      return each.kind == kind.kind && (options_.kind == "mixed" || options_.kind == kind.name);
    });
    if (!of_kind.empty()) {
      candidates.push_back(std::move(of_kind));
    }
  }
  for (int i = 0; i < options_.questions && !candidates.empty(); ++i) {
    auto& of_kind = candidates[static_cast<size_t>(request.index + i) % candidates.size()];
    const StructureQuestion& asked = random.choice(of_kind);
    sample.questions.push_back(asked.question);
    sample.answers.push_back({asked.answer});
    sample.n_answer_tokens =
        std::max(sample.n_answer_tokens, request.count_tokens(asked.answer) + kAnswerTokens);
  }
  return sample;
}

Sample SchemaDoc::make_part(const SampleRequest& request, int begin,
                            const PythonRandom& random) const {
  const auto built = [&](int n) {
    Sample sample = build(request, part(begin, n), random);
    if (sample.questions.empty()) {
      sample.questions.emplace_back();  // tells lengths only
    }
    return sample;
  };
  return build(request, part(begin, largest_fitting(request, 1, built, n_units_)), random);
}

Sample SchemaDoc::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  Sample sample;
  for (int i = 0; i < kMostParts; ++i) {
    const auto begin = static_cast<int>(random.below(n_units_));
    sample = make_part(request, begin, random);
    if (!sample.questions.empty() && is_reached(request, sample)) {
      return sample;
    }
  }
  if (sample.questions.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                options_.file + " gives no question of kind " + options_.kind);
  }
  check_reached(request, sample, options_.file);
  return sample;
}

}  // namespace

std::unique_ptr<Task> make_schema_doc(policy::OptionReader& reader) {
  const auto options =
      read_options_with_file<SchemaDocOptions>(reader, "the document to ask about");
  return options ? std::make_unique<SchemaDoc>(*options) : nullptr;
}

}  // namespace winnow::eval
