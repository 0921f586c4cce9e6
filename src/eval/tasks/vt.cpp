// vt: names all variables that hold a value, directly or through others.
//
// Source    RULER: Hsieh et al., arXiv 2404.06654, variable tracking: one chain of four hops over repeated filler, after
//           a worked example. Own wording
// Prompt    an instruction, the example, filler with `chains` chains of hops + 1 assignments; asks for the first chain
// Draws     random.Random: for each chain its value, its names, its sorted places; then the filler
// Score     primary: the answer's list is the chain. contained: RULER's score. recall_precision: over all names
// Differs   a name is assigned as "B = A" rather than "B = VAR A", and names are five letters as there

#include <memory>
#include <set>

#include "eval/haystack.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

struct VtOptions {
  int chains = 1;
  int hops = 4;
  bool example = true;
  std::string haystack = "repeat";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(chains, "chains", 1, 16, "chains in the text; the first is asked for");
    v(hops, "hops", 1, 16, "variables of a chain that take their value from another");
    v(example, "example", "whether a worked example comes first");
    v(haystack, "haystack", kHaystackForm,
      "the filler: sentences at random, a repeated passage, or essays");
  }
};

constexpr const char* kExample =
    "Example: VAR QED = 31415. The kettle boils. VAR ABC = 27182. VAR JKL = QED. Nobody is at the "
    "door. VAR UVW = JKL. The variables that hold 31415 are QED, JKL, UVW.\n\n";

std::string draw_name(PythonRandom& random) {
  std::string name;
  for (int i = 0; i < 5; ++i) {
    name += static_cast<char>('A' + random.below(26));
  }
  return name;
}

class Vt final : public Task {
 public:
  explicit Vt(const VtOptions& options) : options_(options), haystack_(options.haystack) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  VtOptions options_;
  Haystack haystack_;
};

Sample Vt::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  std::set<std::string> used;
  std::set<std::string> used_values;
  std::vector<std::string> facts;
  std::vector<double> places;
  std::vector<std::string> names;
  std::string asked;
  const size_t n_names = static_cast<size_t>(options_.hops) + 1;
  for (int chain = 0; chain < options_.chains; ++chain) {
    std::string value;
    do {
      value = std::to_string(random.between(10000, 99999));
    } while (!used_values.insert(value).second);
    asked = chain == 0 ? value : asked;
    std::vector<double> chain_places;
    while (chain_places.size() < n_names) {
      std::string name = draw_name(random);
      if (used.insert(name).second) {
        facts.push_back("VAR " + name + " = " + (chain_places.empty() ? value : names.back()) +
                        ".");
        names.push_back(std::move(name));
        chain_places.push_back(0);
      }
    }
    std::ranges::generate(chain_places, [&] { return random.random(); });
    std::ranges::sort(chain_places);
    places.insert(places.end(), chain_places.begin(), chain_places.end());
  }

  Sample base = new_sample(request);
  base.questions = {"Which variables hold " + asked +
                    ", directly or through other variables? Answer with the " +
                    std::to_string(n_names) + " names alone, separated by commas."};
  base.answers = {{names.begin(), names.begin() + static_cast<std::ptrdiff_t>(n_names)}};
  base.rule = AnswerRule::kAll;
  base.pool = names;
  base.answer_cue = "Answer: The variables are";
  base.n_answer_tokens = 8 * static_cast<int>(n_names) + 16;
  base.labels["hops"] = std::to_string(options_.hops);
  return fit_filler(request, haystack_.filler(random), [&](std::span<const std::string> filler) {
    Sample sample = base;
    sample.document =
        "Assignments to variables are scattered over the text below. A variable may be given a "
        "number, or the value of another variable. Keep track of who holds what.\n\n" +
        std::string(options_.example ? kExample : "") + with_facts(filler, facts, places);
    return sample;
  });
}

}  // namespace

std::unique_ptr<Task> make_vt(policy::OptionReader& reader) {
  auto options = policy::read_options<VtOptions>(reader);
  options.haystack = haystack_to_open(options.haystack, reader);
  return std::make_unique<Vt>(options);
}

}  // namespace winnow::eval
