// niah-seed: needles as in the published comparison that eval/seed_recipe.h names: codes of four digits for named
// projects, at depths 0.1, 0.5 and 0.9 in turn.
//
// Seed      length + int(100 depth), as published, for the first three samples of seed 0: one prompt per depth. Later ones
//           add 100000 for each round of depths, and for each seed
// Draws     the codes, then the filler
// Score     primary: all codes stand in the answer

#include <array>
#include <memory>

#include "base/text.h"
#include "eval/seed_recipe.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

constexpr std::array<double, 3> kDepths = {0.1, 0.5, 0.9};

struct NiahSeedOptions {
  SeedOptions seed = {.length = "prompt"};
  std::string variant = "single";

  template <typename Visitor>
  void visit(Visitor& v) {
    seed.visit(v);
    v(variant, "variant", {"single", "multikey", "multivalue"},
      "one project; one of three; one with three codes");
  }
};

struct Needles {
  std::vector<std::string> sentences;
  std::string question;
  std::vector<std::string> gold;
};

Needles draw_needles(const std::string& variant, PythonRandom& random) {
  std::vector<std::string> codes;
  for (int i = 0; i < (variant == "single" ? 1 : 3); ++i) {
    codes.push_back(std::to_string(random.between(1000, 9999)));
  }
  const auto sentence = [](const std::string& project, const std::string& code) {
    return "To open the " + project + " project, enter the code " + code + ".";
  };
  if (variant == "multivalue") {
    return {{"The Meridian project opens with three codes: " + joined(codes, ", ") + "."},
            "Which three codes does the Meridian project open with?",
            codes};
  }
  Needles needles{
      {sentence("Meridian", codes[0])}, "Which code opens the Meridian project?", {codes[0]}};
  if (variant == "multikey") {
    needles.sentences.push_back(sentence("Solstice", codes[1]));
    needles.sentences.push_back(sentence("Equinox", codes[2]));
    needles.question = "Which code opens the Solstice project?";
    needles.gold = {codes[1]};
  }
  return needles;
}

class NiahSeed final : public Task {
 public:
  explicit NiahSeed(const NiahSeedOptions& options) : options_(options) {}

  Sample make(const SampleRequest& request) const override {
    const double depth = kDepths[static_cast<size_t>(request.index) % kDepths.size()];
    const uint64_t round = request.seed + static_cast<uint64_t>(request.index) / kDepths.size();
    PythonRandom random(static_cast<uint64_t>(request.n_tokens) +
                        static_cast<uint64_t>(100 * depth) + 100000 * round);
    const Needles needles = draw_needles(options_.variant, random);

    Sample base = new_sample(request);
    base.questions = {needles.question};
    base.answers = {needles.gold};
    base.rule = AnswerRule::kAll;
    base.n_answer_tokens = 24;
    base.labels["depth"] = rounded_text(depth, 1);
    base.labels["variant"] = options_.variant;
    return fit_seed(request, options_.seed, random, 0, [&](std::span<const std::string> filler) {
      std::vector<std::string> parts(filler.begin(), filler.end());
      for (size_t i = 0; i < needles.sentences.size(); ++i) {
        const double share = std::min(depth + 0.05 * static_cast<double>(i), 0.99);
        const auto place = static_cast<std::ptrdiff_t>(static_cast<double>(parts.size()) * share);
        parts.insert(parts.begin() + place, needles.sentences[i]);
      }
      Sample sample = base;
      sample.document =
          "Read this text with care. A question will follow.\n\n" + joined(parts, " ");
      return sample;
    });
  }

  Score score(const Sample& sample, int question, std::string_view answer) const override {
    Score score = seed_score(sample, question, answer);
    score.primary = score.primary == 1 ? 1 : 0;  // all codes or none
    return score;
  }

 private:
  NiahSeedOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_niah_seed(policy::OptionReader& reader) {
  return std::make_unique<NiahSeed>(policy::read_options<NiahSeedOptions>(reader));
}

}  // namespace winnow::eval
