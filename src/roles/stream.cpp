#include "roles/stream.h"

#include "base/error.h"

namespace winnow::roles {

Stream::Stream(const Format& format) : labeller_(format.make()) {
  spans_.begin_block(format.name);
}

size_t Stream::label(std::string_view text, bool is_end) {
  const size_t before = spans_.position();
  labeller_->label(text, is_end, spans_);
  const size_t n_labelled = spans_.position() - before;
  WINNOW_CHECK(n_labelled <= text.size() && (!is_end || n_labelled == text.size()));
  return n_labelled;
}

void Stream::feed(std::string_view piece) {
  if (waiting_.empty()) {
    waiting_.assign(piece.substr(label(piece, /*is_end=*/false)));
  } else {
    waiting_ += piece;
    waiting_.erase(0, label(waiting_, /*is_end=*/false));
  }
}

void Stream::finish() {
  label(waiting_, /*is_end=*/true);
  waiting_.clear();
  is_finished_ = true;
}

void Stream::take(std::vector<Span>& spans) {
  spans_.take(is_finished_, spans);
}

std::vector<Span> label_text(std::string_view text, const Format& format) {
  Spans spans;
  spans.begin_block(format.name);
  format.make()->label(text, /*is_end=*/true, spans);
  WINNOW_CHECK(spans.position() == text.size());
  std::vector<Span> all;
  spans.take(/*is_all=*/true, all);
  return all;
}

}  // namespace winnow::roles
