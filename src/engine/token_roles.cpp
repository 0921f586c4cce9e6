#include "engine/token_roles.h"

#include <algorithm>

#include "base/error.h"
#include "engine/role_probe.h"
#include "roles/stream.h"

namespace winnow::engine {
namespace {

int rank(roles::Role role, Precedence precedence) {
  using roles::Role;
  if (precedence == Precedence::kOwn) {
    return static_cast<int>(std::min(role, Role::kValue));
  }
  if (role == Role::kDelim && precedence == Precedence::kPaperFlipped) {
    return roles::kRoles;
  }
  return role == Role::kProse ? -1 : static_cast<int>(role);
}

}  // namespace

Precedence precedence_of(const roles::Format& format, bool is_flipped) {
  if (is_flipped) {
    return Precedence::kPaperFlipped;
  }
  return format.name == "paper" ? Precedence::kPaper : Precedence::kOwn;
}

std::vector<roles::Label> token_labels(std::span<const model::ByteRange> bytes,
                                       std::span<const roles::Span> spans, Precedence precedence) {
  std::vector<roles::Label> labels;
  labels.reserve(bytes.size());
  auto first = spans.begin();
  for (const model::ByteRange& token : bytes) {
    while (first != spans.end() && first->end <= token.begin) {
      ++first;
    }
    roles::Label best;
    bool is_found = false;
    for (auto span = first; span != spans.end() && span->begin < token.end; ++span) {
      const int lead = rank(span->label.role, precedence) - rank(best.role, precedence);
      if (!is_found || lead > 0) {
        best = span->label;
        is_found = true;
      } else if (span->label.role == best.role) {
        best.depth = std::max(best.depth, span->label.depth);
      }
    }
    labels.push_back(best);
  }
  return labels;
}

std::vector<roles::Role> token_roles(const model::Vocabulary& vocabulary, std::string_view text,
                                     std::span<const model::Token> tokens,
                                     const roles::Format& format) {
  const std::vector<roles::Label> labels =
      token_labels(model::byte_ranges(vocabulary, text, tokens), roles::label_text(text, format),
                   precedence_of(format));
  std::vector<roles::Role> roles(labels.size());
  std::ranges::transform(labels, roles.begin(), &roles::Label::role);
  return roles;
}

RoleSource::RoleSource(std::string_view name) {
  constexpr std::string_view kProbe = "probe:";
  if (name.starts_with(kProbe)) {
    const std::string path(name.substr(kProbe.size()));
    if (path.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "roles 'probe:' names no file: probe:FILE");
    }
    probe_ = std::make_shared<const RoleProbe>(path);
    name_ = std::string(kProbe) + probe_->digest();
  } else {
    try {
      format_ = &roles::find_format(name);
    } catch (const Error& error) {
      throw Error(error.code(), std::string(error.what()) + "; or probe:FILE");
    }
    name_ = name;
  }
}

std::vector<roles::Role> RoleSource::label(const model::Vocabulary& vocabulary,
                                           std::string_view text,
                                           std::span<const model::Token> tokens) const {
  if (probe_ == nullptr) {
    return token_roles(vocabulary, text, tokens, *format_);
  }
  probe_->check(vocabulary);
  return probe_->label(vocabulary, text, tokens);
}

}  // namespace winnow::engine
