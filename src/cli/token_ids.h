// Token ids as users write them.
#pragma once

#include <string>
#include <vector>

#include "model/vocabulary.h"

namespace winnow::cli {

// "1,2,3": ids separated by commas or white space. Throws invalid_argument for none, and for the first that is not a
// token of a vocabulary of `n_vocab`.
std::vector<model::Token> parse_token_ids(std::string text, int n_vocab);

}  // namespace winnow::cli
