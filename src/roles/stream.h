// Labels a text that arrives in pieces, or all at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "roles/formats.h"
#include "roles/spans.h"

namespace winnow::roles {

// The spans do not depend on where the text is cut into pieces. Keeps less than kLookahead bytes and a piece,
// but for the format "paper".
class Stream {
 public:
  explicit Stream(const Format& format);

  void feed(std::string_view piece);
  // The text is complete.
  void finish();

  // The spans that are found and were not taken yet, in the place of what `spans` holds. They are final, and together without
  // a gap. Given the same vector again and again, it takes no new memory.
  void take(std::vector<Span>& spans);

 private:
  // Returns how many bytes were labelled.
  size_t label(std::string_view text, bool is_end);

  std::unique_ptr<Labeller> labeller_;
  Spans spans_;
  std::string waiting_;  // bytes behind the last label
  bool is_finished_ = false;
};

// All spans of a text.
std::vector<Span> label_text(std::string_view text, const Format& format);

}  // namespace winnow::roles
