#include "model/token_bytes.h"

#include <string>

#include "base/error.h"

namespace winnow::model {

std::vector<ByteRange> byte_ranges(const Vocabulary& vocabulary, std::string_view text,
                                   std::span<const Token> tokens) {
  std::vector<std::string> pieces;
  size_t n_bytes = 0;
  for (const Token token : tokens) {
    pieces.push_back(vocabulary.piece(token, /*render_special=*/true));
    n_bytes += pieces.back().size();
  }
  if (n_bytes == text.size() + 1 && pieces[0].starts_with(' ')) {  // SentencePiece's own space
    pieces[0].erase(0, 1);
  }
  std::vector<ByteRange> ranges;
  size_t at = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t begin = text.find(pieces[i], at);  // right at `at`, unless bytes were left out
    if (begin == std::string_view::npos) {
      throw Error(ErrorCode::kUnsupported,
                  "token " + std::to_string(tokens[i]) + ", number " + std::to_string(i) +
                      " of the text, is not found in it behind byte " + std::to_string(at));
    }
    at = begin + pieces[i].size();
    ranges.push_back({begin, at});
  }
  return ranges;
}

}  // namespace winnow::model
