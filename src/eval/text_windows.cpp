#include "eval/text_windows.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"

namespace winnow::eval {

std::vector<TokenText> read_texts(std::span<const std::string> paths, const model::Model& model) {
  std::vector<TokenText> texts;
  for (const std::string& path : paths) {
    try {
      texts.push_back({.name = std::filesystem::path(path).filename().string(),
                       .tokens = model.vocabulary().tokenize(read_text_file(path),
                                                             model::SpecialText::kPlain)});
    } catch (const Error& error) {
      const bool is_named = std::string_view(error.what()).find(path) != std::string_view::npos;
      throw Error(error.code(), (is_named ? "" : "'" + path + "': ") + std::string(error.what()));
    }
  }
  return texts;
}

TextWindow text_window(std::span<const TokenText> texts, const model::Vocabulary& vocabulary,
                       int n_tokens, int index, int n) {
  const int n_bos = vocabulary.adds_bos() ? 1 : 0;
  const auto n_of_text = static_cast<size_t>(std::max(n_tokens - n_bos, 1));
  size_t n_windows = 0;
  size_t longest = 0;
  for (const TokenText& text : texts) {
    n_windows += text.tokens.size() / n_of_text;
    longest = std::max(longest, text.tokens.size());
  }
  if (n_windows < static_cast<size_t>(n)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the text has " + std::to_string(n_windows) + " windows of " +
                    std::to_string(n_tokens) + " tokens, and " + std::to_string(n) +
                    " are asked for (the longest file has " + std::to_string(longest) + " tokens)");
  }
  size_t window = static_cast<size_t>(index) * n_windows / static_cast<size_t>(n);
  for (const TokenText& text : texts) {
    const size_t n_here = text.tokens.size() / n_of_text;
    if (window < n_here) {
      // What does not fill a window is left between them.
      const size_t begin =
          window * (text.tokens.size() - n_of_text) / std::max<size_t>(n_here - 1, 1);
      TextWindow result{.name = text.name, .begin = static_cast<int>(begin), .tokens = {}};
      if (n_bos > 0) {
        result.tokens.push_back(vocabulary.bos());
      }
      const auto first = text.tokens.begin() + static_cast<std::ptrdiff_t>(begin);
      result.tokens.insert(result.tokens.end(), first,
                           first + static_cast<std::ptrdiff_t>(n_of_text));
      return result;
    }
    window -= n_here;
  }
  WINNOW_CHECK(false);
}

double repeated_share(std::span<const model::Token> tokens) {
  constexpr size_t kStretch = 16;
  if (tokens.size() < 2 * kStretch) {
    return 0;
  }
  std::set<std::vector<model::Token>> seen;
  size_t n_repeated = 0;
  const size_t n = tokens.size() - kStretch + 1;
  for (size_t i = 0; i < n; ++i) {
    const auto stretch = tokens.subspan(i, kStretch);
    n_repeated += seen.emplace(stretch.begin(), stretch.end()).second ? 0 : 1;
  }
  return static_cast<double>(n_repeated) / static_cast<double>(n);
}

}  // namespace winnow::eval
