// ini: names of sections HEADER, their brackets DELIM; keys KEY, "=" or ":" DELIM, values VALUE; comments PROSE; white
// space around these WS. Depth is 1 in a section, 0 above the first.
//
// A comment is a line that begins with ";" or "#", or what follows these marks behind white space, outside quotes. An
// indented line behind a key goes on with its value; a line without "=" and ":" is a key alone.

#include <memory>

#include "roles/formats.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

// Where a comment begins in a value, or its end.
size_t value_length(std::string_view text) {
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if ((c == '"' || c == '\'' || c == '`') && i == 0) {
      quote = c;
    } else if ((c == ';' || c == '#') && i > 0 && is_space(text[i - 1])) {
      return i;
    }
  }
  return text.size();
}

class Ini final : public LineLabeller {
 protected:
  void label_line(std::string_view line, Spans& spans) override {
    const bool is_indented = is_space(line[0]);
    LineLabels labels(line, spans);
    labels.add_space(depth_);
    const char c = labels.next();
    if (labels.is_at_end()) {
      has_open_value_ = false;
      return;
    }
    if (c == ';' || c == '#') {
      labels.add_trimmed(labels.rest().size(), Role::kProse, depth_);
    } else if (c == '[' && labels.rest().find(']') != std::string_view::npos) {
      depth_ = 1;
      has_open_value_ = false;
      labels.add(1, Role::kDelim);
      labels.add(labels.rest().find(']'), Role::kHeader);
      labels.add(1, Role::kDelim);
      labels.add_space(depth_);
      labels.add_trimmed(labels.rest().size(), Role::kProse, depth_);
    } else {
      if (!(is_indented && has_open_value_)) {
        const size_t n_key = labels.rest().find_first_of("=:");
        labels.add_trimmed(n_key, Role::kKey, depth_);
        labels.add(1, Role::kDelim, depth_);
        labels.add_space(depth_);
        has_open_value_ = n_key != std::string_view::npos;
      }
      labels.add_trimmed(value_length(labels.rest()), Role::kValue, depth_);
      labels.add_trimmed(labels.rest().size(), Role::kProse, depth_);
    }
  }

 private:
  int depth_ = 0;
  bool has_open_value_ = false;
};

}  // namespace

std::unique_ptr<Labeller> make_ini() {
  return std::make_unique<Ini>();
}

}  // namespace winnow::roles
