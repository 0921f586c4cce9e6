// Stretches of long texts that likelihoods are measured on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/model.h"

namespace winnow::eval {

// One text, as tokens.
struct TokenText {
  std::string name;  // of its file, without folders
  std::vector<model::Token> tokens;
};

// Throws not_found, io, bad_data for a file that is not UTF-8 text.
std::vector<TokenText> read_texts(std::span<const std::string> paths, const model::Model& model);

struct TextWindow {
  std::string name;                  // of the text
  int begin = 0;                     // in its tokens
  std::vector<model::Token> tokens;  // with the beginning-of-text token that the model wants
  bool is_looped = false;            // it repeats itself
};

// The `index`-th of n windows of n_tokens, spread evenly over the texts: none reaches beyond a text, none overlaps
// another. Throws invalid_argument where there are not so many.
TextWindow text_window(std::span<const TokenText> texts, const model::Vocabulary& vocabulary,
                       int n_tokens, int index, int n);

// The share of the 16-token stretches of a text that were in it before: about 0 for prose, and near 1 for a passage
// that is repeated to fill a length, on which a model's likelihood says nothing.
double repeated_share(std::span<const model::Token> tokens);

}  // namespace winnow::eval
