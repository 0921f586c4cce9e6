// cwe-seed and fwe-seed: the most frequent words of a list, as in eval/seed_recipe.h. cwe-seed has three words ten times
// and 39 twice, offset 10000; fwe-seed has twenty, of which that of rank r comes max(2, round(40 r^-2)) times, offset
// 20000. The list stands behind the filler, just before the question.
//
// Draws     the order of the 42 words, the order of the list, then the filler
// Score     primary: recall times precision over the words of the list

#include <cmath>
#include <memory>

#include "eval/seed_recipe.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

constexpr int kAsked = 3;

// What tells the two apart. counts[i]: how often word i comes, those asked for first.
struct ListKind {
  uint64_t offset;
  std::vector<int> counts;
  const char* introduction;
};

class WordListSeed final : public Task {
 public:
  WordListSeed(ListKind kind, const SeedOptions& options)
      : kind_(std::move(kind)), options_(options) {}

  Sample make(const SampleRequest& request) const override {
    PythonRandom random = seed_random(request, kind_.offset);
    std::vector<std::string> pool = seed_words();
    random.shuffle(pool);
    pool.resize(kind_.counts.size());
    std::vector<std::string> list;
    for (size_t i = 0; i < pool.size(); ++i) {
      list.insert(list.end(), static_cast<size_t>(kind_.counts[i]), pool[i]);
    }
    random.shuffle(list);

    Sample base = new_sample(request);
    base.questions = {"Which " + std::to_string(kAsked) + " words come most often in the list?"};
    base.answers = {{pool.begin(), pool.begin() + kAsked}};
    base.rule = AnswerRule::kAll;
    base.pool = pool;
    base.answer_cue = "Answer: The words are";
    base.n_answer_tokens = 48;
    return fit_seed(request, options_, random, static_cast<int>(list.size()),
                    [&](std::span<const std::string> filler) {
                      Sample sample = base;
                      sample.document = joined(filler, " ") + "\n\n" + kind_.introduction + "\n\n" +
                                        joined(list, ", ");
                      return sample;
                    });
  }

  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return seed_score(sample, question, answer);
  }

 private:
  ListKind kind_;
  SeedOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_cwe_seed(policy::OptionReader& reader) {
  std::vector<int> counts(42, 2);
  std::fill_n(counts.begin(), kAsked, 10);
  return std::make_unique<WordListSeed>(
      ListKind{10000, counts, "Here is a list of words. A few come many times, the others twice."},
      policy::read_options<SeedOptions>(reader));
}

std::unique_ptr<Task> make_fwe_seed(policy::OptionReader& reader) {
  std::vector<int> counts;
  for (int rank = 1; rank <= 20; ++rank) {
    counts.push_back(std::max(2, static_cast<int>(std::nearbyint(40.0 / (rank * rank)))));
  }
  return std::make_unique<WordListSeed>(
      ListKind{20000, counts, "Here is a list of words that come more or less often."},
      policy::read_options<SeedOptions>(reader));
}

}  // namespace winnow::eval
