// What the tokenizer needs to know about UTF-8 text before libllama sees it.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace winnow::model {

// The offset of the first byte that cannot be part of a character; nullopt when all is UTF-8. Overlong forms,
// surrogates and code points beyond U+10FFFF are no characters.
std::optional<size_t> first_invalid_utf8(std::string_view text);

// The most characters that a word with the white space before or after it can have, where words end at white
// space. `text` is UTF-8.
size_t longest_word(std::string_view text);

}  // namespace winnow::model
