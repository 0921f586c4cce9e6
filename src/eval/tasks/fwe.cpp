// fwe: finds the three most frequent of coded words whose frequencies fall as a power of their rank.
//
// Source    RULER: Hsieh et al., arXiv 2404.06654, frequent words extraction: words of six letters, as many as there are
//           50 tokens; the word of rank k comes floor(n k^-alpha / zeta(alpha)) times; rank 1 is written as dots
// Prompt    an instruction, then n words, as many as fit
// Draws     random.Random: the words, then their order
// Score     primary: the answer's list is the words of ranks 2 to 4. contained: RULER's score. recall_precision: over all
// Differs   nothing known, beside the generator: RULER shuffles words with one seed for all samples

#include <cmath>
#include <memory>
#include <set>

#include "eval/prompt_length.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

struct FweOptions {
  float alpha = 2.0F;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(alpha, "alpha", 1.2F, 4.0F, "exponent of the frequencies: small is hard");
  }
};

constexpr int kTokensPerWord = 50;
constexpr int kFewestWords = 8;  // three that are asked for, dots, and others
constexpr size_t kAsked = 3;

class Fwe final : public Task {
 public:
  explicit Fwe(const FweOptions& options)
      : alpha_(static_cast<double>(options.alpha)), zeta_(std::riemann_zeta(alpha_)) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  int count_of(size_t rank, int n) const {
    return static_cast<int>(n * std::pow(static_cast<double>(rank), -alpha_) / zeta_);
  }
  // The shortest text in which the last word asked for comes more often than the next.
  int fewest() const {
    int n = 1;
    while (count_of(kAsked + 1, n) <= count_of(kAsked + 2, n) + 1) {
      ++n;
    }
    return n;
  }

  double alpha_;
  double zeta_;  // of alpha
};

std::vector<std::string> draw_words(PythonRandom& random, int n) {
  std::vector<char> letters;
  for (char c = 'a'; c <= 'z'; ++c) {
    letters.push_back(c);
  }
  std::vector<std::string> words;
  std::set<std::string> used;
  while (std::ssize(words) < n) {
    const std::vector<char> drawn = random.choices(letters, 6);
    std::string word(drawn.begin(), drawn.end());
    if (used.insert(word).second) {
      words.push_back(std::move(word));
    }
  }
  words[0] = "...";
  return words;
}

Sample Fwe::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  const std::vector<std::string> words =
      draw_words(random, std::max(kFewestWords, request.n_tokens / kTokensPerWord));
  Sample base = new_sample(request);
  base.questions = {
      "Which three coded words come most often in the text? Do not count the dots. Answer with "
      "the words alone, separated by commas."};
  base.answers = {{words.begin() + 1, words.begin() + 1 + kAsked}};
  base.rule = AnswerRule::kAll;
  base.pool.assign(words.begin() + 1, words.end());
  base.answer_cue = "Answer: The words are";
  base.n_answer_tokens = 48;
  const auto build = [&](int n) {
    std::vector<std::string> text;
    for (size_t rank = 1; rank <= words.size(); ++rank) {
      text.insert(text.end(), static_cast<size_t>(count_of(rank, n)), words[rank - 1]);
    }
    PythonRandom(random).shuffle(text);
    Sample sample = base;
    sample.document =
        "Below is a text in coded words, among dots without meaning. Keep track of how often each "
        "coded word comes.\n\n" +
        joined(text, " ");
    return sample;
  };
  return build(largest_fitting(request, fewest(), build));
}

}  // namespace

std::unique_ptr<Task> make_fwe(policy::OptionReader& reader) {
  return std::make_unique<Fwe>(policy::read_options<FweOptions>(reader));
}

}  // namespace winnow::eval
