// schema: looks a value up in a document that is nothing but structure, by the path of names that leads to it.
//
// Source    "Adaptive Filtering of the KV Cache: Diagnosing and Correcting Structural-Role Bias in LLM Inference", 2026
//           (eval/schema_objects.h)
// Prompt    the document alone, then what stands at a path
// Draws     random.Random(seed * 1000 + index): the members of the root, then the leaf that is asked for
// Score     primary: the answer is the value. contained: the study's score; f1
// Differs   the study grows an object to two characters for each token that is wanted, and cuts the text where that is too long;
//           here as many leaves are there as fit, so that the document is whole. The study asks base models without a cue

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "eval/prompt_length.h"
#include "eval/schema_objects.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

struct SchemaOptions {
  std::string format = "json";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(format, "format", {"json", "compact", "xml", "xml-attributes", "yaml", "csv", "markdown"},
      "what the same objects are written as; compact is JSON without white space");
  }
};

class Schema final : public Task {
 public:
  explicit Schema(const SchemaOptions& options)
      : format_(*std::ranges::find(schema_formats(), options.format, &SchemaFormat::name)) {}

  Sample make(const SampleRequest& request) const override {
    const PythonRandom begin(request.seed * 1000 + static_cast<uint64_t>(request.index));
    const auto build = [&](int n_leaves) {
      PythonRandom random = begin;
      const std::vector<SchemaLeaf> leaves = draw_leaves(n_leaves, random);
      const size_t asked = static_cast<size_t>(random.below(std::ssize(leaves)));
      Sample sample = new_sample(request);
      sample.document = format_.write(leaves);
      sample.questions = {"What is the value at " + leaves[asked].dotted_path() +
                          "? Answer with the value alone."};
      sample.answers = {{leaves[asked].value}};
      sample.n_answer_tokens = 32;
      sample.labels["depth"] =
          rounded_text(static_cast<double>(10 * asked / leaves.size()) / 10, 1);
      return sample;
    };
    const int most = std::max(request.n_tokens, 1);  // leaves: each has a token at least
    const int n_leaves = largest_fitting(request, 1, build, most);
    Sample sample = build(n_leaves);
    if (n_leaves == most) {
      check_reached(request, sample, "the object of all names");
    }
    return sample;
  }

  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  const SchemaFormat& format_;
};

}  // namespace

std::unique_ptr<Task> make_schema(policy::OptionReader& reader) {
  return std::make_unique<Schema>(policy::read_options<SchemaOptions>(reader));
}

}  // namespace winnow::eval
