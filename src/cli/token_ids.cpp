#include "cli/token_ids.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.h"

namespace winnow::cli {

std::vector<model::Token> parse_token_ids(std::string text, int n_vocab) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  std::vector<model::Token> ids;
  std::string word;
  while (words >> word) {
    int id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= n_vocab) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--ids: '" + word + "' is not a token id of this model (allowed: 0 to " +
                      std::to_string(n_vocab - 1) + ")");
    }
    ids.push_back(id);
  }
  if (ids.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--ids gives no token");
  }
  return ids;
}

}  // namespace winnow::cli
