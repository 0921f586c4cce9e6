// Which bytes of a text its tokens stand for.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "model/vocabulary.h"

namespace winnow::model {

// Bytes [begin, end) of a text. A token may end inside a character.
struct ByteRange {
  size_t begin;
  size_t end;
};

// Of each of the tokens that Vocabulary::tokenize made of `text`: [n_tokens], ascending, none overlap. The space that a
// vocabulary puts before a text is no byte of it; bytes that the vocabulary cannot spell belong to no token. Throws
// unsupported where a token is not found in the text.
std::vector<ByteRange> byte_ranges(const Vocabulary& vocabulary, std::string_view text,
                                   std::span<const Token> tokens);

}  // namespace winnow::model
