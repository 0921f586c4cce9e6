// rules: follows instructions that stand before a long text, each of which can be checked.
//
// Source    the kind of IFEval (Zhou et al., arXiv 2311.07911). Own rules and wording. Shows which of the instructions of a
//           system prompt are lost when it is compressed
// Prompt    `rules` of seven rules, then filler; the questions are about neither
// Draws     random.Random: which rules, their words and numbers, the questions, then the filler
// Score     primary: share of the rules that the answer follows. Secondary: each rule, and "all". An empty answer follows
//           none

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "eval/haystack.h"
#include "eval/scoring.h"
#include "eval/tasks.h"
#include "eval/words.h"

namespace winnow::eval {
namespace {

struct RulesOptions {
  int rules = 4;
  int questions = 1;
  std::string haystack = "noise";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(rules, "rules", 1, 7, "instructions to follow");
    v(questions, "questions", 1, 6, "questions asked one after another");
    v(haystack, "haystack", kHaystackForm,
      "the text after the rules: sentences at random, a repeated passage, or essays");
  }
};

const std::vector<std::string> kTopics = {
    "What is a lighthouse good for?",    "How is bread made?",
    "Why do birds fly south in winter?", "What can one do on a rainy day?",
    "How does a bicycle stay upright?",  "What makes a good neighbour?"};

// A rule, with its word or number where it has one.
struct Rule {
  std::string name;
  std::string value;
};

Rule draw_rule(int64_t which, PythonRandom& random) {
  static const std::vector<std::string> common = {"the", "and", "of", "is"};
  switch (which) {
    case 0:
      return {"begin", random.choice(nouns())};
    case 1:
      return {"end", random.choice(nouns())};
    case 2:
      return {"mention", random.choice(nouns())};
    case 3:
      return {"avoid", random.choice(common)};
    case 4:
      return {"lower", ""};
    case 5:
      return {"sentences", std::to_string(random.between(2, 4))};
    default:
      return {"words", std::to_string(random.between(20, 40))};
  }
}

std::string instruction(const Rule& rule) {
  const std::string word = "the word \"" + rule.value + "\"";
  return rule.name == "begin"       ? "Begin every answer with " + word + "."
         : rule.name == "end"       ? "End every answer with " + word + "."
         : rule.name == "mention"   ? "Use " + word + " in every answer."
         : rule.name == "avoid"     ? "Never use " + word + "."
         : rule.name == "lower"     ? "Write in lower case only, without a single capital letter."
         : rule.name == "sentences" ? "Write exactly " + rule.value + " sentences."
                                    : "Write at most " + rule.value + " words.";
}

bool is_followed(const Rule& rule, std::string_view answer) {
  const std::vector<std::string> words = words_of(answer);
  if (words.empty()) {
    return false;
  }
  if (rule.name == "begin") {
    return words.front() == rule.value;
  }
  if (rule.name == "end") {
    return words.back() == rule.value;
  }
  if (rule.name == "mention") {
    return contains_words(answer, rule.value);
  }
  if (rule.name == "avoid") {
    return !contains_words(answer, rule.value);
  }
  if (rule.name == "lower") {
    return std::ranges::none_of(answer, [](char c) { return c >= 'A' && c <= 'Z'; });
  }
  const auto n = static_cast<size_t>(std::stoi(rule.value));
  return rule.name == "sentences" ? split_sentences(answer).size() == n : words.size() <= n;
}

// An answer that follows all of them, as there is no single right one.
std::string following_answer(const std::vector<Rule>& rules) {
  const auto value_of = [&](std::string_view name) {
    const auto rule = std::ranges::find(rules, name, &Rule::name);
    return rule == rules.end() ? std::string() : rule->value + " ";
  };
  const std::string sentences = value_of("sentences");
  const int n_sentences = sentences.empty() ? 1 : std::stoi(sentences);
  std::string text = value_of("begin") + value_of("mention");
  for (int i = 1; i <= n_sentences; ++i) {
    text += i < n_sentences ? "stays here. " : "stays " + value_of("end");
  }
  text.back() = '.';
  return text;
}

// "begin=otter;lower": how a sample's label keeps its rules.
std::string spelled(const std::vector<Rule>& rules) {
  std::vector<std::string> parts;
  for (const Rule& rule : rules) {
    parts.push_back(rule.name + (rule.value.empty() ? "" : "=" + rule.value));
  }
  return joined(parts, ";");
}

std::vector<Rule> parse_rules(std::string_view text) {
  std::vector<Rule> rules;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view part = text.substr(0, end);
    const size_t equals = std::min(part.find('='), part.size());
    rules.push_back({std::string(part.substr(0, equals)),
                     std::string(part.substr(std::min(equals + 1, part.size())))});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return rules;
}

class Rules final : public Task {
 public:
  explicit Rules(const RulesOptions& options) : options_(options), haystack_(options.haystack) {}

  Sample make(const SampleRequest& request) const override {
    PythonRandom random = sample_random(request);
    std::vector<Rule> rules;
    std::string instructions;
    for (const int64_t which : random.sample_indices(7, options_.rules)) {
      rules.push_back(draw_rule(which, random));
      instructions += "- " + instruction(rules.back()) + "\n";
    }
    Sample base = new_sample(request);
    base.questions = random.sample(kTopics, options_.questions);
    for (std::string& question : base.questions) {
      question += " Keep to the instructions from the beginning.";
    }
    base.answers.assign(base.questions.size(), {following_answer(rules)});
    base.n_answer_tokens = 96;
    base.labels["rules"] = spelled(rules);
    return fit_filler(request, haystack_.filler(random), [&](std::span<const std::string> filler) {
      Sample sample = base;
      sample.document = "Follow these instructions in every answer:\n" + instructions +
                        "\nHere is today's bulletin, for information.\n\n" + joined(filler, " ");
      return sample;
    });
  }

  Score score(const Sample& sample, int /*question*/, std::string_view answer) const override {
    const std::vector<Rule> rules = parse_rules(sample.labels.at("rules"));
    Score score;
    int n_followed = 0;
    for (const Rule& rule : rules) {
      const bool is_kept = is_followed(rule, answer);
      score.secondary[rule.name] = is_kept ? 1 : 0;
      n_followed += is_kept ? 1 : 0;
    }
    score.primary = n_followed / static_cast<double>(rules.size());
    score.secondary["all"] = n_followed == std::ssize(rules) ? 1 : 0;
    return score;
  }

 private:
  RulesOptions options_;
  Haystack haystack_;
};

}  // namespace

std::unique_ptr<Task> make_rules(policy::OptionReader& reader) {
  auto options = policy::read_options<RulesOptions>(reader);
  options.haystack = haystack_to_open(options.haystack, reader);
  return std::make_unique<Rules>(options);
}

}  // namespace winnow::eval
