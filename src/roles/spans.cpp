#include "roles/spans.h"

#include "roles/formats.h"

namespace winnow::roles {

std::string_view Label::language() const {
  return kFormats[format].name;
}

void Spans::begin_block(std::string_view language) {
  ++block_;
  set_language(language);
}

void Spans::set_language(std::string_view language) {
  format_ = static_cast<uint8_t>(&find_format(language) - kFormats);
}

void Spans::take(bool is_all, std::vector<Span>& taken) {
  taken.clear();
  taken.swap(spans_);
  if (!is_all && !taken.empty()) {
    spans_.push_back(taken.back());
    taken.pop_back();
  }
}

}  // namespace winnow::roles
