#include "roles/block_starts.h"

#include <algorithm>
#include <string>

#include "roles/bytes.h"
#include "roles/detect.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

constexpr size_t kJsonSniffed = 1024;           // bytes of what may be JSON
constexpr size_t kElementSniffed = 2048;        // bytes of what may be an element with others in it
constexpr size_t kEndTagWithin = kLongestLine;  // or that ends so soon

// A page, whose end tag may be far away: prose that speaks of the tag goes on with a word.
bool begins_page(std::string_view near) {
  const size_t end = near.find('>');
  if (end == std::string_view::npos || !equals_in_any_case(element_name(near), "html")) {
    return false;
  }
  const std::string_view behind = near.substr(end + 1);
  return behind.substr(n_spaces(behind)).starts_with('<');
}

}  // namespace

std::optional<bool> BlockStarts::begins_json(std::string_view text, bool is_end, size_t position) {
  if ((text[0] != '{' && text[0] != '[') || !may_try(position)) {
    return false;
  }
  if (text.size() < kJsonSniffed && !is_end) {
    return std::nullopt;
  }
  size_t n_read = 0;
  const bool is_json = begins_with_json(text.substr(0, kJsonSniffed), n_read);
  n_tried_ += is_json ? 0 : n_read;
  return is_json;
}

std::optional<bool> BlockStarts::begins_element(std::string_view text, bool is_end, size_t position,
                                                bool is_behind_text) {
  if (text[0] != '<' || !may_try(position)) {
    return false;
  }
  if (text.size() < 66 && !is_end) {
    return std::nullopt;
  }
  const std::string_view name = element_name(text);
  if (name.empty()) {
    return false;
  }
  const std::string_view searched = text.substr(0, kEndTagWithin);
  const std::string_view near = text.substr(0, kElementSniffed);
  const size_t tag_end = near.find('>');
  const bool is_empty = tag_end != std::string_view::npos && near[tag_end - 1] == '/';
  const bool is_void = name == "br" || name == "hr" || name == "img";
  if (is_void || is_empty || begins_page(near) ||
      searched.find("</" + std::string(name)) != std::string_view::npos) {
    return true;
  }
  if (near.size() == kElementSniffed && (!is_behind_text || !is_html_name(name))) {
    size_t n_tags = 0;
    for (size_t at = near.find('<'); at != std::string_view::npos; at = near.find('<', at + 1)) {
      n_tags += at + 1 < near.size() && (near[at + 1] == '/' || is_letter(near[at + 1])) ? 1 : 0;
    }
    if (n_tags >= 4 && near.find("</") != std::string_view::npos) {
      return true;
    }
  }
  if (text.size() < kEndTagWithin && !is_end) {
    return std::nullopt;
  }
  n_tried_ += searched.size();
  return false;
}

}  // namespace winnow::roles
