// niah: finds facts ("needles") that are hidden in a long text.
//
// Source    RULER: Hsieh et al., arXiv 2404.06654, with the numbers of its eight needle tasks as presets; the needle
//           whose question shares no word with it after NoLiMa, Modarressi et al., arXiv 2502.05167. Own wording
// Prompt    an instruction, then filler with `keys` facts, of `values` values each; each of `turns` questions asks for
//           `queries` of them
// Depth     the first fact asked for stands at the sample's depth, the others at drawn places
// Draws     random.Random: keys, values, places, then the filler
// Score     primary: the answer's list is the gold list. contained: share of gold values in the answer (RULER's score)
// Differs   RULER puts all facts at drawn places; its essays are not part of winnow (haystack=FILE)

#include <array>
#include <memory>
#include <set>

#include "base/text.h"
#include "eval/haystack.h"
#include "eval/scoring.h"
#include "eval/tasks.h"
#include "eval/words.h"

namespace winnow::eval {
namespace {

struct NiahOptions {
  int keys = 1;
  int values = 1;
  int queries = 1;
  int turns = 1;
  std::string type = "number";
  std::string key = "word";
  std::string haystack = "noise";
  int depths = 10;
  float depth = 0.5F;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(keys, "keys", 1, 64, "facts in the text, at least as many as are asked for");
    v(values, "values", 1, 16, "values of each fact; all are asked for");
    v(queries, "queries", 1, 16, "facts that the question asks for");
    v(turns, "turns", 1, 16, "questions asked one after another, each about other facts");
    v(type, "type", {"number", "word", "uuid", "paraphrased"},
      "what is hidden; paraphrased: a number, and no word of the question stands in its fact");
    v(key, "key", {"word", "uuid"}, "what a value is asked by");
    v(haystack, "haystack", "noise, repeat, needles, or a text FILE or folder",
      "the filler: sentences at random, a repeated passage, more facts, or essays");
    v(depths, "depths", 1, 101, "depths from start to end that samples take in turn; 1: `depth`");
    v(depth, "depth", 0.0F, 1.0F, "share of the filler before the fact, with depths=1");
  }
};

// A fact and a question about it that have no word in common but those without content.
struct Paraphrase {
  const char* before;  // the value
  const char* after;
  const char* question;
};
constexpr std::array<Paraphrase, 12> kParaphrases = {{
    {"The keeper of the lighthouse owns ", " clocks.",
     "How many timepieces does the man who looks after the beacon have?"},
    {"On Friday our baker sold ", " loaves.", "How much bread was bought before the weekend?"},
    {"The vineyard bottled ", " litres of red last autumn.",
     "How much wine was made where the grapes grow?"},
    {"Her violin teacher charges ", " crowns a lesson.",
     "What is the price of an hour with the music tutor?"},
    {"The ferry has seats for ", " passengers.", "How many people can sit on the boat?"},
    {"The stables near the mill shelter ", " horses.",
     "How many animals for riding are kept close to where grain is ground?"},
    {"A dentist paid ", " dollars for her new car.",
     "What did the automobile cost that belongs to the doctor for teeth?"},
    {"The painting in the museum is insured for ", " francs.",
     "If the picture in the gallery were stolen, how much money would be due?"},
    {"Our pilot has spent ", " hours in the air.", "How long has the aviator been flying in all?"},
    {"Behind the barn the farmer planted ", " potatoes.",
     "How many vegetables were put into the ground?"},
    {"The choir knows ", " hymns by heart.", "How many songs can the singers do from memory?"},
    {"Snow buried the village for ", " days.",
     "During what time was the small settlement covered in white?"},
}};

const char* value_noun(const std::string& type) {
  return type == "number" ? "access number" : type == "word" ? "password" : "identifier";
}

std::string draw_key(const NiahOptions& options, PythonRandom& random) {
  return options.key == "uuid" ? random.uuid() : word_pair(random.below(n_word_pairs()));
}

std::string draw_value(const NiahOptions& options, PythonRandom& random) {
  if (options.type == "uuid") {
    return random.uuid();
  }
  if (options.type == "word") {
    return random.choice(nouns());
  }
  return std::to_string(options.type == "number" ? random.between(1000000, 9999999)
                                                 : random.between(1000, 9999));
}

// Draws until it is new.
template <typename Draw>
std::string draw_new(std::set<std::string>& used, const Draw& draw) {
  while (true) {
    std::string drawn = draw();
    if (used.insert(drawn).second) {
      return drawn;
    }
  }
}

std::string fact(const NiahOptions& options, const std::string& key, const std::string& value) {
  return std::string(options.values == 1 ? "The " : "One ") + value_noun(options.type) + " of " +
         key + " is " + value + ".";
}

struct Facts {
  std::vector<std::string> sentences;  // those asked for first
  std::vector<double> places;
  std::vector<std::string> questions;
  std::vector<std::vector<std::string>> gold;  // of each question
};

class Niah final : public Task {
 public:
  explicit Niah(const NiahOptions& options) : options_(options) {
    if (options.haystack != "needles") {
      haystack_.emplace(options.haystack);
    }
  }

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  Facts draw_facts(PythonRandom& random, std::set<std::string>& used) const;
  Facts draw_paraphrased(PythonRandom& random) const;
  std::string question_for(const std::vector<std::string>& keys) const;
  // Facts that nobody asks for.
  Filler needles(PythonRandom random, std::set<std::string> used) const;
  double depth_of(int index) const;

  NiahOptions options_;
  std::optional<Haystack> haystack_;
};

double Niah::depth_of(int index) const {
  return options_.depths == 1 ? static_cast<double>(options_.depth)
                              : eval::depth_of(index, options_.depths);
}

std::string Niah::question_for(const std::vector<std::string>& keys) const {
  const std::string noun = value_noun(options_.type);
  const bool is_list = keys.size() > 1 || options_.values > 1;
  std::string list;
  for (size_t i = 0; i < keys.size(); ++i) {
    list += (i == 0 ? "" : i + 1 == keys.size() ? " and " : ", ") + keys[i];
  }
  if (!is_list) {
    return "What is the " + noun + " of " + list + "? Answer with the " + noun + " alone.";
  }
  return "What are all the " + noun + "s of " + list + "? Answer with the " +
         std::to_string(static_cast<int>(keys.size()) * options_.values) + " " + noun +
         "s alone, separated by commas.";
}

Facts Niah::draw_facts(PythonRandom& random, std::set<std::string>& used) const {
  Facts facts;
  std::vector<std::string> asked_keys;
  std::vector<std::string> gold;
  for (int k = 0; k < options_.keys; ++k) {
    const std::string key = draw_new(used, [&] { return draw_key(options_, random); });
    asked_keys.push_back(key);
    for (int v = 0; v < options_.values; ++v) {
      gold.push_back(draw_new(used, [&] { return draw_value(options_, random); }));
      facts.sentences.push_back(fact(options_, key, gold.back()));
    }
    if (std::ssize(asked_keys) == options_.queries &&
        std::ssize(facts.questions) < options_.turns) {
      facts.questions.push_back(question_for(asked_keys));
      facts.gold.push_back(gold);
      asked_keys.clear();
      gold.clear();
    }
  }
  return facts;
}

Facts Niah::draw_paraphrased(PythonRandom& random) const {
  Facts facts;
  std::set<std::string> used;
  for (const int64_t i : random.sample_indices(std::ssize(kParaphrases), options_.keys)) {
    const Paraphrase& paraphrase = kParaphrases[static_cast<size_t>(i)];
    const std::string value = draw_new(used, [&] { return draw_value(options_, random); });
    facts.sentences.push_back(paraphrase.before + value + paraphrase.after);
    if (std::ssize(facts.questions) < options_.turns) {
      facts.questions.push_back(std::string(paraphrase.question) + " Answer with a numeral.");
      facts.gold.push_back({value});
    }
  }
  return facts;
}

Filler Niah::needles(PythonRandom random, std::set<std::string> used) const {
  auto state =
      std::make_shared<std::pair<PythonRandom, std::set<std::string>>>(random, std::move(used));
  return [options = options_, state]() -> std::optional<std::string> {
    auto& [own_random, seen] = *state;
    if (std::ssize(seen) > n_word_pairs() / 2) {
      return std::nullopt;
    }
    // Values may come again, as words are few; keys may not.
    const auto key = draw_new(seen, [&, &drawn = own_random] { return draw_key(options, drawn); });
    return fact(options, key, draw_value(options, own_random));
  };
}

Sample Niah::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  std::set<std::string> used;
  Facts facts =
      options_.type == "paraphrased" ? draw_paraphrased(random) : draw_facts(random, used);
  const double depth = depth_of(request.index);
  facts.places = {depth};
  while (facts.places.size() < facts.sentences.size()) {
    facts.places.push_back(random.random());
  }

  Sample base = new_sample(request);
  base.questions = facts.questions;
  base.answers = facts.gold;
  base.rule = AnswerRule::kAll;
  base.n_answer_tokens =
      (options_.type == "uuid" ? 48 : 16) * options_.queries * options_.values + 8;
  base.labels["depth"] = rounded_text(depth, 2);
  return fit_filler(request, haystack_ ? haystack_->filler(random) : needles(random, used),
                    [&](std::span<const std::string> filler) {
                      Sample sample = base;
                      sample.document =
                          "Somewhere in the text below stand facts that you will be asked "
                          "about.\n\n" +
                          with_facts(filler, facts.sentences, facts.places);
                      return sample;
                    });
}

void check_together(NiahOptions& options, policy::OptionReader& reader) {
  options.keys = std::max(options.keys, options.queries * options.turns);
  if (options.type == "word" && 2 * options.keys * options.values > std::ssize(nouns())) {
    reader.add_problem("type=word has " + std::to_string(nouns().size() / 2) +
                       " passwords for keys times values");
  }
  if (options.type != "paraphrased") {
    return;
  }
  if (options.values > 1 || options.queries > 1) {
    reader.add_problem("type=paraphrased asks for one fact, so values and queries are 1");
  }
  if (options.keys > std::ssize(kParaphrases)) {
    reader.add_problem("type=paraphrased has " + std::to_string(kParaphrases.size()) +
                       " facts, so keys is at most that");
  }
  if (options.haystack == "needles" || options.key == "uuid") {
    reader.add_problem(
        "type=paraphrased has no keys, so haystack=needles and key=uuid mean nothing");
  }
}

}  // namespace

std::unique_ptr<Task> make_niah(policy::OptionReader& reader) {
  auto options = policy::read_options<NiahOptions>(reader);
  check_together(options, reader);
  options.haystack = haystack_to_open(options.haystack, reader);
  return std::make_unique<Niah>(options);
}

}  // namespace winnow::eval
