// json-out: writes a record that stands in a long text as a JSON object, and nothing else.
//
// Source    none: structured answers are what many programs ask of a model, and a cache that lost too much breaks them
// Prompt    an instruction, filler with `records` records of five fields in prose; asks for one
// Depth     the record asked for stands at the sample's depth, the others at drawn places
// Draws     random.Random: the records field by field, places, then the filler
// Score     primary: the answer, with or without a code fence around it, is JSON with exactly the record's fields. valid:
//           it is JSON. fields: share of the record's fields that are right

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "eval/haystack.h"
#include "eval/scoring.h"
#include "eval/tasks.h"
#include "eval/words.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;

struct JsonOutOptions {
  int records = 4;
  std::string haystack = "noise";
  int depths = 10;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(records, "records", 1, 64, "records in the text; one is asked for");
    v(haystack, "haystack", kHaystackForm,
      "the filler: sentences at random, a repeated passage, or essays");
    v(depths, "depths", 2, 101, "depths from start to end that samples take in turn");
  }
};

ordered_json draw_record(PythonRandom& random, std::set<std::string>& names) {
  std::string name;
  do {
    name = word_pair(random.below(n_word_pairs()));
  } while (!names.insert(name).second);
  ordered_json record;
  record["name"] = name;
  record["label"] = random.choice(nouns());
  record["weight"] = random.between(100, 9999);
  record["finish"] = random.choice(adjectives());
  record["in_stock"] = random.below(2) == 1;
  return record;
}

std::string prose_of(const ordered_json& record) {
  return "The item \"" + record["name"].get<std::string>() + "\" has the label " +
         record["label"].get<std::string>() + ", weighs " +
         std::to_string(record["weight"].get<int>()) + " grams, has a " +
         record["finish"].get<std::string>() + " finish and is " +
         (record["in_stock"].get<bool>() ? "in stock." : "not in stock.");
}

// What stands in the code fence that the answer is, or the answer.
std::string_view without_fence(std::string_view answer) {
  answer = trim(answer);
  const size_t line_end = answer.find('\n');
  if (!answer.starts_with("```") || !answer.ends_with("```") ||
      line_end == std::string_view::npos || answer.size() < line_end + 4) {
    return answer;
  }
  return answer.substr(line_end + 1, answer.size() - line_end - 4);
}

class JsonOut final : public Task {
 public:
  explicit JsonOut(const JsonOutOptions& options)
      : options_(options), haystack_(options.haystack) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override;

 private:
  JsonOutOptions options_;
  Haystack haystack_;
};

Sample JsonOut::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  const double depth = depth_of(request.index, options_.depths);
  std::set<std::string> names;
  ordered_json asked;
  std::vector<std::string> facts;
  for (int i = 0; i < options_.records; ++i) {
    const ordered_json record = draw_record(random, names);
    facts.push_back(prose_of(record));
    asked = i == 0 ? record : asked;
  }
  std::vector<double> places = {depth};
  while (places.size() < facts.size()) {
    places.push_back(random.random());
  }

  Sample base = new_sample(request);
  base.questions = {
      "Write the item " + asked["name"].get<std::string>() +
      " as a JSON object with the keys name, label, weight (a number), finish and in_stock "
      "(true or false). Answer with the JSON alone."};
  base.answers = {{asked.dump()}};
  base.n_answer_tokens = 96;
  base.labels["depth"] = rounded_text(depth, 2);
  return fit_filler(request, haystack_.filler(random), [&](std::span<const std::string> filler) {
    Sample sample = base;
    sample.document =
        "Items are described here and there in the text below. You will be asked for one.\n\n" +
        with_facts(filler, facts, places);
    return sample;
  });
}

Score JsonOut::score(const Sample& sample, int question, std::string_view answer) const {
  const auto gold = ordered_json::parse(sample.answers.at(static_cast<size_t>(question)).at(0));
  const auto given = ordered_json::parse(without_fence(answer), nullptr, false);
  const bool is_valid = !given.is_discarded();
  int n_right = 0;
  for (const auto& [key, value] : gold.items()) {
    n_right += is_valid && given.is_object() && given.contains(key) && given[key] == value ? 1 : 0;
  }
  const bool is_right = n_right == std::ssize(gold) && given.size() == gold.size();
  return {.primary = is_right ? 1.0 : 0.0,
          .secondary = {{"valid", is_valid ? 1.0 : 0.0},
                        {"fields", n_right / static_cast<double>(gold.size())},
                        {"unseen", unseen_share(sample, question, answer)}}};
}

}  // namespace

std::unique_ptr<Task> make_json_out(policy::OptionReader& reader) {
  auto options = policy::read_options<JsonOutOptions>(reader);
  options.haystack = haystack_to_open(options.haystack, reader);
  return std::make_unique<JsonOut>(options);
}

}  // namespace winnow::eval
