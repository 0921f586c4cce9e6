// Words that tasks are made of. Prompts name their seeds, so the lists and their order do not change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow::eval {

// Common English words in lower case, in alphabetical order; none is in both lists.
const std::vector<std::string>& nouns();
const std::vector<std::string>& adjectives();

// "agile-anchor", "agile-anvil", ...: every adjective with every noun.
int n_word_pairs();
std::string word_pair(int64_t index);

}  // namespace winnow::eval
