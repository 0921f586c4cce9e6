// A probe: what tokens are there for, told from their ids by a linear model instead of from the text by a parser. `winnow
// train-probe` makes them (calibrate/train_probe.h).
//
// Source    "Adaptive Filtering of the KV Cache: Diagnosing and Correcting Structural-Role Bias in LLM Inference", 2026:
//           multinomial logistic regression on the ids at offsets -2 to 2; block features are what it leaves to others
// Score     z(i, r) = b(r) + Σ_o W_o(id(i + o), r) + Σ_f B_f(feature_f(i), r); the role is the r of the greatest z     (1)
// Symbols   i = token; o = offset, -2 to 2; ids before the first and behind the last token, and ids that training has not
//           seen, have W = 0; f = block feature
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/token_bytes.h"
#include "model/vocabulary.h"
#include "roles/role.h"

namespace winnow::engine {

inline constexpr int kProbeOffsets = 5;

using RoleScores = roles::PerRole<float>;

// What is known of a token without a parser: the state of the text before its first byte, by the bytes alone.
enum class BlockFeature {
  kDepth,  // brackets and elements that are open, up to 7; of lists and of others apart
  kMark,  // the last of { } [ ] , : < > = / | outside strings, and whether a quote is open in the line
  kLine,     // tokens since the last line break, up to 7
  kSegment,  // whether the document or a question is read
};

inline constexpr std::array<int, 4> kBlockFeatureValues{16, 24, 8, 2};

// Each below kBlockFeatureValues.
using BlockFeatures = std::array<uint8_t, kBlockFeatureValues.size()>;

// Of the tokens of a text, [n_tokens].
std::vector<BlockFeatures> block_features(std::string_view text,
                                          std::span<const model::ByteRange> tokens,
                                          bool is_question = false);

class RoleProbe {
 public:
  // All weights 0.
  RoleProbe(const model::Vocabulary& vocabulary, std::span<const model::Token> seen,
            bool has_block_features);
  // Throws what SectionFile throws, and bad_data.
  explicit RoleProbe(const std::string& path);

  // Throws io.
  void write(const std::string& path) const;

  // Throws invalid_argument where the vocabulary is not the one that it was trained for.
  void check(const model::Vocabulary& vocabulary) const;

  // The roles of the tokens that a document `text` was made of. Throws what model::byte_ranges throws.
  std::vector<roles::Role> label(const model::Vocabulary& vocabulary, std::string_view text,
                                 std::span<const model::Token> tokens) const;
  // The same; features [n_tokens] where has_block_features().
  std::vector<roles::Role> label(std::span<const model::Token> tokens,
                                 std::span<const BlockFeatures> features) const;

  bool has_block_features() const { return has_block_features_; }
  const std::string& digest() const { return digest_; }  // of the file that it was read from
  size_t n_seen() const { return seen_.size(); }
  size_t n_bytes() const;  // of the weights and what they belong to, as in a file

  // For training: the weights in (1) of token i, as indices into weights(): n of them.
  struct Active {
    std::array<uint32_t, 1 + kProbeOffsets + kBlockFeatureValues.size()> rows;
    size_t n = 0;
  };
  Active active(std::span<const model::Token> tokens, std::span<const BlockFeatures> features,
                size_t i) const;
  std::span<RoleScores> weights() { return weights_; }

 private:
  // The first of the token's rows; -1 where it was not seen.
  int64_t row_of(model::Token token) const {
    return token >= 0 && static_cast<size_t>(token) < place_.size()
               ? place_[static_cast<size_t>(token)]
               : -1;
  }
  void place_seen(int n_vocab);

  std::string vocabulary_;          // its digest
  std::vector<model::Token> seen_;  // ascending
  std::vector<int32_t> place_;      // [n_vocab] first row of the token, or -1
  bool has_block_features_ = false;
  std::string digest_;
  // [1 + sum of kBlockFeatureValues + n_seen * kProbeOffsets]: b, the B_f, then the W_o of each token.
  std::vector<RoleScores> weights_;
};

}  // namespace winnow::engine
