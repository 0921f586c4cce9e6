// Whether a line of a text begins a block of JSON or an element.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace winnow::roles {

// Looks at what may begin a block before it is believed, at most so far that the work stays linear in the text.
class BlockStarts {
 public:
  // Whether `text`, at `position` of the whole one, begins with JSON; nullopt where more text is needed to tell.
  std::optional<bool> begins_json(std::string_view text, bool is_end, size_t position);
  // The same of an element that ends before long, or has others in it. `is_behind_text`: prose stands before it.
  std::optional<bool> begins_element(std::string_view text, bool is_end, size_t position,
                                     bool is_behind_text);

 private:
  bool may_try(size_t position) const { return n_tried_ <= 8 * position + (size_t{1} << 20); }

  size_t n_tried_ = 0;  // bytes that were looked at in vain
};

}  // namespace winnow::roles
