// vt-seed: variable tracking as in eval/seed_recipe.h: two chains of three variables, one of which is asked for.
//
// Draws     for each chain its value, then its names until `hops` are new; then the filler. Offset 0
// Score     primary: recall times precision over all names

#include <memory>
#include <set>

#include "eval/seed_recipe.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

constexpr int kChains = 2;

struct VtSeedOptions {
  SeedOptions seed;
  int hops = 3;

  template <typename Visitor>
  void visit(Visitor& v) {
    seed.visit(v);
    v(hops, "hops", 1, 16, "variables of each chain; published beside 3: 2 and 4");
  }
};

class VtSeed final : public Task {
 public:
  explicit VtSeed(const VtSeedOptions& options) : options_(options) {}

  Sample make(const SampleRequest& request) const override {
    PythonRandom random = seed_random(request, 0);
    std::vector<std::string> values;
    std::vector<std::string> names;  // of the first chain, then of the second
    std::set<std::string> used;
    for (int chain = 1; chain <= kChains; ++chain) {
      values.push_back(std::to_string(random.between(10000, 99999)));
      while (std::ssize(names) < chain * options_.hops) {
        std::string name = "X" + std::to_string(random.between(1, 999));
        if (used.insert(name).second) {
          names.push_back(std::move(name));
        }
      }
    }
    // Chains take turns; each keeps its order.
    std::vector<std::string> spans;
    for (int hop = 0; hop < options_.hops; ++hop) {
      for (int chain = 0; chain < kChains; ++chain) {
        const auto i = static_cast<size_t>(chain * options_.hops + hop);
        spans.push_back("VAR " + names[i] + " = " +
                        (hop == 0 ? values[static_cast<size_t>(chain)] : names[i - 1]) + ".");
      }
    }

    Sample base = new_sample(request);
    base.questions = {"Which variables hold the value " + values[0] +
                      ", whether given directly or through other variables? There are exactly " +
                      std::to_string(options_.hops) + "."};
    base.answers = {{names.begin(), names.begin() + options_.hops}};
    base.rule = AnswerRule::kAll;
    base.pool = names;
    base.answer_cue = "Answer: The variables are";
    base.n_answer_tokens = 48;
    base.labels["hops"] = std::to_string(options_.hops);
    return fit_seed(request, options_.seed, random, 0, [&](std::span<const std::string> filler) {
      Sample sample = base;
      sample.document =
          "The text below assigns values to variables. A variable is given a number, or another "
          "variable, whose value it then has too.\n\n" +
          scattered(filler, spans);
      return sample;
    });
  }

  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return seed_score(sample, question, answer);
  }

 private:
  VtSeedOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_vt_seed(policy::OptionReader& reader) {
  return std::make_unique<VtSeed>(policy::read_options<VtSeedOptions>(reader));
}

}  // namespace winnow::eval
