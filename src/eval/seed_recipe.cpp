#include "eval/seed_recipe.h"

#include <algorithm>

#include "eval/scoring.h"
#include "eval/words.h"

namespace winnow::eval {
namespace {

const Haystack& noise() {
  static const Haystack haystack("noise");
  return haystack;
}

// Published: grown and trimmed until one sentence less would be too short.
std::vector<std::string> filler_of(const SampleRequest& request, const PythonRandom& random,
                                   int n_tokens) {
  const Filler next = noise().filler(random);
  std::vector<std::string> sentences;
  do {
    const size_t n_more = std::max<size_t>(8, sentences.size());
    for (size_t i = 0; i < n_more; ++i) {
      sentences.push_back(*next());
    }
  } while (request.count_tokens(joined(sentences, " ")) < n_tokens);
  size_t too_short = 0;
  size_t enough = sentences.size();
  while (enough - too_short > 1) {
    const size_t middle = too_short + (enough - too_short) / 2;
    const bool is_enough =
        request.count_tokens(joined(std::span(sentences).first(middle), " ")) >= n_tokens;
    (is_enough ? enough : too_short) = middle;
  }
  sentences.resize(enough);
  return sentences;
}

}  // namespace

PythonRandom seed_random(const SampleRequest& request, uint64_t offset) {
  return PythonRandom(static_cast<uint64_t>(request.n_tokens) * 100 + request.seed +
                      static_cast<uint64_t>(request.index) + offset);
}

Sample fit_seed(const SampleRequest& request, const SeedOptions& options,
                const PythonRandom& random, int n_list_tokens,
                const std::function<Sample(std::span<const std::string>)>& build) {
  if (options.length == "filler") {
    return build(filler_of(request, random, std::max(64, request.n_tokens - n_list_tokens)));
  }
  return fit_filler(request, noise().filler(random), build);
}

std::string scattered(std::span<const std::string> filler, std::span<const std::string> spans) {
  std::vector<std::string> parts(filler.begin(), filler.end());
  for (size_t i = 0; i < spans.size(); ++i) {
    const double share = static_cast<double>(i + 1) / static_cast<double>(spans.size() + 1);
    const auto place = static_cast<std::ptrdiff_t>(static_cast<double>(parts.size()) * share);
    parts.insert(parts.begin() + place, spans[i]);
  }
  return joined(parts, " ");
}

Score seed_score(const Sample& sample, int question, std::string_view answer) {
  const std::vector<std::string>& gold = sample.answers.at(static_cast<size_t>(question));
  const std::string_view text = first_paragraph(answer);
  const double recall = contained_share(text, gold);
  return {.primary = sample.pool.empty() ? recall : recall_times_precision(text, gold, sample.pool),
          .secondary = {{"exact", is_exact_list(text, gold) ? 1.0 : 0.0},
                        {"contained", recall},
                        {"unseen", unseen_share(sample, question, text)}}};
}

std::vector<std::string> seed_words() {
  std::vector<std::string> words;
  for (size_t i = 0; i < 42; ++i) {
    words.push_back(nouns().at(4 * i));
  }
  return words;
}

}  // namespace winnow::eval
