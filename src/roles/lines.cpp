#include "roles/lines.h"

namespace winnow::roles {

void LineLabeller::label(std::string_view text, bool is_end, Spans& spans) {
  if (is_at_start_) {
    if (text.size() < kByteOrderMark.size() && !is_end) {
      return;
    }
    if (text.starts_with(kByteOrderMark)) {
      spans.add(kByteOrderMark.size(), Role::kSpace);
      text.remove_prefix(kByteOrderMark.size());
    }
    is_at_start_ = false;
  }
  while (!text.empty()) {
    const std::optional<std::string_view> line = first_line(text, is_end);
    if (!line) {
      return;
    }
    if (is_cut_) {
      const size_t n_bytes = without_end(*line).size();
      spans.add_alike(n_bytes);
      spans.add(line->size() - n_bytes, Role::kSpace);
    } else {
      label_line(*line, spans);
    }
    is_cut_ = !line->ends_with('\n');
    text.remove_prefix(line->size());
  }
}

}  // namespace winnow::roles
