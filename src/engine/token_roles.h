// What the tokens of a text are there for, from the labels of their bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/token_bytes.h"
#include "model/vocabulary.h"
#include "roles/formats.h"

namespace winnow::engine {

// Which role a token has whose bytes have several.
enum class Precedence {
  kOwn,    // KEY, HEADER and VALUE alike, of which the first counts, then as roles::Role has them
  kPaper,  // as the published study: WS before PROSE
  kPaperFlipped,  // and DELIM before all
};

// Of the labels of `format`; `is_flipped` is the study's ablation.
Precedence precedence_of(const roles::Format& format, bool is_flipped = false);

// The label of the first byte, from the left, that has the winning role, with the greatest depth that such bytes have; a token
// without bytes of the text is PROSE. bytes [n_tokens], ascending; spans without a gap over the text.
std::vector<roles::Label> token_labels(std::span<const model::ByteRange> bytes,
                                       std::span<const roles::Span> spans,
                                       Precedence precedence = Precedence::kOwn);

// The roles of the tokens that `text` was tokenised to, [n_tokens]. Throws what model::byte_ranges throws.
std::vector<roles::Role> token_roles(const model::Vocabulary& vocabulary, std::string_view text,
                                     std::span<const model::Token> tokens,
                                     const roles::Format& format);

class RoleProbe;

// Who says what a document's tokens are there for: the labeller of a format, or a probe.
class RoleSource {
 public:
  RoleSource() : RoleSource("auto") {}
  // "json", "probe:FILE". Throws invalid_argument for a format that is unknown, and what RoleProbe throws.
  explicit RoleSource(std::string_view name);

  // The same for the same labels: of a probe also its digest.
  const std::string& name() const { return name_; }

  // As token_roles(). Throws invalid_argument where a probe is for another vocabulary.
  std::vector<roles::Role> label(const model::Vocabulary& vocabulary, std::string_view text,
                                 std::span<const model::Token> tokens) const;

 private:
  std::string name_;
  const roles::Format* format_ = nullptr;
  std::shared_ptr<const RoleProbe> probe_ = nullptr;
};

}  // namespace winnow::engine
