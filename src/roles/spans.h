// The labels of a text, as they are found: spans that follow each other without a gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "roles/role.h"

namespace winnow::roles {

struct Label {
  Role role = Role::kProse;
  bool is_in_string = false;  // between quotes of the format, or one of these quotes
  uint8_t format = 0;         // its place in kFormats
  int depth = 0;              // of nesting, as the format counts it (docs/roles.md)
  int block = 0;              // which of the text's blocks, from 0: a text may change its format

  // The name of the format.
  std::string_view language() const;

  bool operator==(const Label&) const = default;
};

// Bytes [begin, end) of a text, as many as have one label.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  Label label;

  bool operator==(const Span&) const = default;
};

// Collects labels in the order of the text; neighbours with the same label become one span.
class Spans {
 public:
  // The bytes labelled so far.
  size_t position() const { return position_; }

  // Labels the next n_bytes.
  void add(size_t n_bytes, Role role, int depth = 0, bool is_in_string = false) {
    if (n_bytes == 0) {
      return;
    }
    const size_t begin = position_;
    position_ += n_bytes;
    const Label label{role, is_in_string, format_, depth, block_};
    if (!spans_.empty() && spans_.back().label == label) {
      spans_.back().end = position_;
    } else {
      spans_.push_back({begin, position_, label});
    }
  }

  // Labels the next n_bytes as what stands before them.
  void add_alike(size_t n_bytes) {
    const Label last = spans_.empty() ? Label{} : spans_.back().label;
    add(n_bytes, last.role, last.depth, last.is_in_string);
  }

  // What follows is a block of its own, in this format.
  void begin_block(std::string_view language);

  // The format of the block is known now, before anything in it was labelled.
  void set_language(std::string_view language);

  // Puts the spans that can no longer grow, all but the last one, or all, in the place of what `taken` holds, and uses its memory
  // for what follows: fresh memory for each piece of a text would take longer than the labelling.
  void take(bool is_all, std::vector<Span>& taken);

  const std::vector<Span>& all() const { return spans_; }

 private:
  std::vector<Span> spans_;
  size_t position_ = 0;
  int block_ = -1;
  uint8_t format_ = 0;
};

}  // namespace winnow::roles
