// cwe: finds the words that a long list holds most often.
//
// Source    RULER: Hsieh et al., arXiv 2404.06654, common words extraction: ten words thirty times among others three
//           times, below 4096 tokens six times among others once, after a worked example of twenty words three times or
//           once (forty words ten or three times). Own words
// Prompt    an instruction, the example, a numbered list as long as fits
// Draws     random.Random: two seeds of 64 bits, for the example and the list; of each: the words, then their order
// Score     primary: the answer's list is the ten words. contained: RULER's score. recall_precision: over all words
// Differs   where there are more words than in winnow's lists, pairs of an adjective and a noun stand for them

#include <memory>

#include "eval/prompt_length.h"
#include "eval/scoring.h"
#include "eval/tasks.h"
#include "eval/words.h"

namespace winnow::eval {
namespace {

struct CweOptions {
  int common = 10;
  bool example = true;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(common, "common", 1, 20, "words that come often; all are asked for");
    v(example, "example", "whether a worked example comes first");
  }
};

constexpr int kLongPrompt = 4096;  // tokens from which words come more often

struct WordList {
  std::vector<std::string> words;  // different ones, the common first
  std::string text;                // numbered
};

// `n_words` different words, of which the first `n_common` come n_often times, the others n_seldom times.
WordList make_list(PythonRandom random, int n_words, int n_common, int n_often, int n_seldom) {
  std::vector<std::string> all = nouns();
  all.insert(all.end(), adjectives().begin(), adjectives().end());
  WordList list;
  if (n_words <= std::ssize(all)) {
    list.words = random.sample(all, n_words);
  } else {
    for (const int64_t i :
         random.sample_indices(n_word_pairs(), std::min(n_words, n_word_pairs()))) {
      list.words.push_back(word_pair(i));
    }
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < list.words.size(); ++i) {
    const int n_times = static_cast<int>(i) < n_common ? n_often : n_seldom;
    order.insert(order.end(), static_cast<size_t>(n_times), i);
  }
  random.shuffle(order);
  for (size_t i = 0; i < order.size(); ++i) {
    list.text += (i == 0 ? "" : " ") + std::to_string(i + 1) + ". " + list.words[order[i]];
  }
  return list;
}

class Cwe final : public Task {
 public:
  explicit Cwe(const CweOptions& options) : options_(options) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  std::string example_text(const PythonRandom& random, bool is_long) const;

  CweOptions options_;
};

std::string Cwe::example_text(const PythonRandom& random, bool is_long) const {
  const WordList list = is_long ? make_list(random, 40, options_.common, 10, 3)
                                : make_list(random, 20, options_.common, 3, 1);
  return "Example: " + list.text + "\nThe most frequent words are: " +
         joined(std::span(list.words).first(static_cast<size_t>(options_.common)), ", ") + ".\n\n";
}

Sample Cwe::make(const SampleRequest& request) const {
  PythonRandom seeds = sample_random(request);
  const PythonRandom example_random(seeds.bits(64));
  const PythonRandom random(seeds.bits(64));
  const bool is_long = request.n_tokens >= kLongPrompt;
  const std::string intro =
      "Below is a numbered list of words, some of which come more often than the others. Remember "
      "those that come most often.\n\n" +
      (options_.example ? example_text(example_random, is_long) + "List: " : "");

  Sample base = new_sample(request);
  base.questions = {"Which " + std::to_string(options_.common) +
                    " words come most often in the list? Answer with the words alone, separated "
                    "by commas."};
  base.rule = AnswerRule::kAll;
  base.answer_cue = "Answer: The words are";
  base.n_answer_tokens = 12 * options_.common + 16;
  const auto build = [&](int n_words) {
    const WordList list = is_long ? make_list(random, n_words, options_.common, 30, 3)
                                  : make_list(random, n_words, options_.common, 6, 1);
    Sample sample = base;
    sample.document = intro + list.text;
    sample.answers = {{list.words.begin(), list.words.begin() + options_.common}};
    sample.pool = list.words;
    return sample;
  };
  return build(largest_fitting(request, 2 * options_.common, build));
}

}  // namespace

std::unique_ptr<Task> make_cwe(policy::OptionReader& reader) {
  return std::make_unique<Cwe>(policy::read_options<CweOptions>(reader));
}

}  // namespace winnow::eval
