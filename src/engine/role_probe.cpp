#include "engine/role_probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/section_file.h"

namespace winnow::engine {
namespace {

using roles::kRoles;
using roles::Role;

constexpr SectionFormat kFormat{
    .magic = {'w', 'i', 'n', 'n', 'o', 'w', 'r', 'p'}, .version = 1, .name = "probe"};

constexpr size_t kFeatureRows =
    std::accumulate(kBlockFeatureValues.begin(), kBlockFeatureValues.end(), size_t{0});
constexpr size_t kFirstTokenRow = 1 + kFeatureRows;

constexpr uint8_t kMost = 7;  // depths and tokens that are told apart

// Of some of the tokens: enough to tell vocabularies apart.
std::string digest_of(const model::Vocabulary& vocabulary) {
  constexpr int kStep = 61;
  std::string text = std::to_string(vocabulary.n_tokens());
  for (model::Token token = 0; token < vocabulary.n_tokens(); token += kStep) {
    text += '\n' + vocabulary.piece(token, /*render_special=*/true);
  }
  return content_hash(std::as_bytes(std::span(text)));
}

// Follows the bytes of a text.
class BlockState {
 public:
  void pass(char c) {
    if (c == '\n') {
      n_since_break_ = -1;  // counts the token that it is in, too
      is_quoted_ = false;
      is_escaped_ = false;
      return;
    }
    if (is_quoted_) {
      is_quoted_ = is_escaped_ || c != '"';
      is_escaped_ = !is_escaped_ && c == '\\';
      return;
    }
    if (c == '"') {
      is_quoted_ = true;
      return;
    }
    if (last_ == '<' && c == '/') {  // an end tag
      pop();
      pop();
    } else if (c == '{' || c == '[' || c == '<') {
      push(c == '[');
    } else if (c == '}' || c == ']' || (c == '>' && last_ == '/')) {
      pop();
    }
    const size_t place = kMarks.find(c);
    mark_ = place != std::string_view::npos ? place + 1 : mark_;
    last_ = c;
  }

  void end_token() { n_since_break_ = std::min<int>(n_since_break_ + 1, kMost); }

  BlockFeatures features(bool is_question) const {
    BlockFeatures features{};
    const auto depth = static_cast<uint8_t>(std::min<size_t>(depth_, kMost));
    features[static_cast<size_t>(BlockFeature::kDepth)] =
        static_cast<uint8_t>(2 * depth + (is_in_list() ? 1 : 0));
    features[static_cast<size_t>(BlockFeature::kMark)] =
        static_cast<uint8_t>(2 * mark_ + (is_quoted_ ? 1 : 0));
    features[static_cast<size_t>(BlockFeature::kLine)] =
        static_cast<uint8_t>(std::max(n_since_break_, 0));
    features[static_cast<size_t>(BlockFeature::kSegment)] = is_question ? 1 : 0;
    return features;
  }

 private:
  static constexpr std::string_view kMarks = "{}[],:<>=/|";
  static_assert(2 * (kMarks.size() + 1) ==
                kBlockFeatureValues[static_cast<size_t>(BlockFeature::kMark)]);

  bool is_in_list() const { return depth_ > 0 && (lists_ & 1) != 0; }
  void push(bool is_list) {
    lists_ = lists_ << 1 | (is_list ? 1 : 0);  // of the innermost 64
    ++depth_;
  }
  void pop() {
    if (depth_ > 0) {
      lists_ >>= 1;
      --depth_;
    }
  }

  size_t depth_ = 0;
  uint64_t lists_ = 0;
  size_t mark_ = 0;  // its place in kMarks, from 1
  char last_ = '\0';
  bool is_quoted_ = false;
  bool is_escaped_ = false;
  int n_since_break_ = 0;
};

}  // namespace

std::vector<BlockFeatures> block_features(std::string_view text,
                                          std::span<const model::ByteRange> tokens,
                                          bool is_question) {
  std::vector<BlockFeatures> features;
  features.reserve(tokens.size());
  BlockState state;
  size_t at = 0;
  for (const model::ByteRange& token : tokens) {
    for (; at < token.begin; ++at) {  // bytes that no token has
      state.pass(text[at]);
    }
    features.push_back(state.features(is_question));
    for (; at < token.end; ++at) {
      state.pass(text[at]);
    }
    state.end_token();
  }
  return features;
}

RoleProbe::RoleProbe(const model::Vocabulary& vocabulary, std::span<const model::Token> seen,
                     bool has_block_features)
    : vocabulary_(digest_of(vocabulary)),
      seen_(seen.begin(), seen.end()),
      has_block_features_(has_block_features) {
  std::ranges::sort(seen_);
  seen_.erase(std::ranges::unique(seen_).begin(), seen_.end());
  WINNOW_CHECK(seen_.empty() || (seen_.front() >= 0 && seen_.back() < vocabulary.n_tokens()));
  place_seen(vocabulary.n_tokens());
  weights_.resize(kFirstTokenRow + seen_.size() * kProbeOffsets);
}

void RoleProbe::place_seen(int n_vocab) {
  place_.assign(static_cast<size_t>(n_vocab), -1);
  for (size_t i = 0; i < seen_.size(); ++i) {
    place_[static_cast<size_t>(seen_[i])] =
        static_cast<int32_t>(kFirstTokenRow + i * kProbeOffsets);
  }
}

RoleProbe::RoleProbe(const std::string& path) {
  constexpr int kMostTokens = 1 << 24;
  SectionFile file(path, kFormat);
  SectionReader head = file.read("probe");
  vocabulary_ = head.get_text();
  const int n_vocab = head.get_int("the tokens of the vocabulary", 1, kMostTokens);
  const int n_seen = head.get_int("the tokens that were seen", 0, n_vocab);
  has_block_features_ = head.get_flag("block features");
  seen_ = head.get_array<model::Token>(static_cast<size_t>(n_seen));
  head.expect_end();
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i] < 0 || seen_[i] >= n_vocab || (i > 0 && seen_[i] <= seen_[i - 1])) {
      head.fail("token " + std::to_string(seen_[i]) +
                " is not in order, or not in a vocabulary of " + std::to_string(n_vocab));
    }
  }
  place_seen(n_vocab);
  SectionReader weights = file.read("weights");
  weights_.resize(kFirstTokenRow + seen_.size() * kProbeOffsets);
  const std::vector<float> values = weights.get_array<float>(weights_.size() * kRoles);
  weights.expect_end();
  file.refuse_others();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      weights.fail("weight " + std::to_string(i) + " is not finite");
    }
    weights_[i / kRoles][i % kRoles] = values[i];
  }
  digest_ = content_hash(MappedFile(path).bytes());
}

size_t RoleProbe::n_bytes() const {
  return seen_.size() * sizeof(model::Token) + weights_.size() * sizeof(RoleScores);
}

void RoleProbe::write(const std::string& path) const {
  SectionWriter file;
  file.begin("probe");
  file.put_text(vocabulary_);
  file.put(static_cast<int32_t>(place_.size()));
  file.put(static_cast<int32_t>(seen_.size()));
  file.put_flag(has_block_features_);
  file.put_array(std::span<const model::Token>(seen_));
  file.begin("weights");
  for (const RoleScores& row : weights_) {
    file.put_array(std::span<const float>(row));
  }
  file.write(path, kFormat);
}

void RoleProbe::check(const model::Vocabulary& vocabulary) const {
  if (digest_of(vocabulary) != vocabulary_) {
    throw Error(ErrorCode::kInvalidArgument,
                "the probe was trained for a vocabulary of " + std::to_string(place_.size()) +
                    " tokens with the digest " + vocabulary_ + "; the model's has " +
                    std::to_string(vocabulary.n_tokens()) + " with " + digest_of(vocabulary) +
                    " (winnow train-probe makes one for it)");
  }
}

RoleProbe::Active RoleProbe::active(std::span<const model::Token> tokens,
                                    std::span<const BlockFeatures> features, size_t i) const {
  Active active;
  active.rows[active.n++] = 0;
  for (size_t offset = 0; offset < kProbeOffsets; ++offset) {
    const size_t at = i + offset - kProbeOffsets / 2;  // wraps around before the first token
    const int64_t row = at < tokens.size() ? row_of(tokens[at]) : -1;
    if (row >= 0) {
      active.rows[active.n++] = static_cast<uint32_t>(row) + static_cast<uint32_t>(offset);
    }
  }
  uint32_t first = 1;
  for (size_t f = 0; has_block_features_ && f < kBlockFeatureValues.size(); ++f) {
    active.rows[active.n++] = first + features[i][f];
    first += static_cast<uint32_t>(kBlockFeatureValues[f]);
  }
  return active;
}

std::vector<Role> RoleProbe::label(std::span<const model::Token> tokens,
                                   std::span<const BlockFeatures> features) const {
  WINNOW_CHECK(!has_block_features_ || features.size() == tokens.size());
  std::vector<Role> roles;
  roles.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Active rows = active(tokens, features, i);
    RoleScores scores{};
    for (const uint32_t row : std::span(rows.rows).first(rows.n)) {
      for (size_t r = 0; r < kRoles; ++r) {
        scores[r] += weights_[row][r];  // Eq. (1)
      }
    }
    roles.push_back(static_cast<Role>(std::ranges::max_element(scores) - scores.begin()));
  }
  return roles;
}

std::vector<Role> RoleProbe::label(const model::Vocabulary& vocabulary, std::string_view text,
                                   std::span<const model::Token> tokens) const {
  if (!has_block_features_) {
    return label(tokens, {});
  }
  return label(tokens, block_features(text, model::byte_ranges(vocabulary, text, tokens)));
}

}  // namespace winnow::engine
