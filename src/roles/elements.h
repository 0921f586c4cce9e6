// The elements of XML or HTML that are open, and what HTML knows of them by their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace winnow::roles {

// What is special about some of HTML's elements.
struct HtmlElement {
  bool is_void = false;           // has no end tag, and nothing in it
  bool is_ended_by_next = false;  // the next of its name ends it
  bool holds_raw_text = false;    // no tags in it but its own end
};

// By the name in lower case.
HtmlElement html_element(std::string_view name);

class OpenElements {
 public:
  // How many elements are open.
  int depth() const { return static_cast<int>(open_.size() + n_deeper_); }

  void open(std::string_view name, bool is_ended_by_next);
  // Closes all up to the one of this name, if it is among the innermost; returns whether it is.
  bool close(std::string_view name);
  void close_last();

 private:
  std::vector<uint32_t> open_;  // hashes of their names
  size_t n_deeper_ = 0;         // further ones, without names
};

}  // namespace winnow::roles
