// What the tasks named *-seed have in common: small prompts after a published comparison of eviction methods, with its
// constructions, counts, order of random calls and scoring, in own words. A sample can be made again in Python with
// random.Random(length * 100 + seed + index + the task's offset).
//
// Source    rajveer43/VeloxQuant-MLX, the Q-Filters benchmarks beyond needles (four tasks after RULER, arXiv 2404.06654)
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/prompt_length.h"
#include "eval/task.h"

namespace winnow::eval {

struct SeedOptions {
  std::string length = "prompt";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(length, "length", {"prompt", "filler"},
      "what has the wanted length: the prompt, or as published the filler alone");
  }
};

PythonRandom seed_random(const SampleRequest& request, uint64_t offset);

// The sample around as much filler as `options` say: of the prompt, or so many sentences that filler alone has the wanted
// tokens, less n_list_tokens but at least 64. Draws the filler from `random`.
Sample fit_seed(const SampleRequest& request, const SeedOptions& options,
                const PythonRandom& random, int n_list_tokens,
                const std::function<Sample(std::span<const std::string>)>& build);

// The filler with span i of n where (i + 1) / (n + 1) of what has grown so far lies before it.
std::string scattered(std::span<const std::string> filler, std::span<const std::string> spans);

// Primary: recall of the gold answers times precision over the pool, if there is one, in the first paragraph. Secondary:
// "exact", "contained", "unseen".
Score seed_score(const Sample& sample, int question, std::string_view answer);

// The 42 words that lists are made of.
std::vector<std::string> seed_words();

}  // namespace winnow::eval
