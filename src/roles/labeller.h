// What a format's labeller does: it reads a text from left to right and says what each byte is there for.
#pragma once

#include <cstddef>
#include <string_view>

#include "roles/spans.h"

namespace winnow::roles {

// A labeller never looks further ahead than this: where it is shown so many bytes, it labels some.
inline constexpr size_t kLookahead = size_t{1} << 16;

class Labeller {
 public:
  virtual ~Labeller() = default;

  // Adds labels for the first bytes of `text`, as many as can be told without knowing what follows it: the next call's
  // text begins behind them. Where `is_end`, nothing follows, and all bytes are labelled, unless is_done(). Any bytes are
  // allowed; where they break the rules of the format, what is understood keeps its label, and the rest is PROSE.
  virtual void label(std::string_view text, bool is_end, Spans& spans) = 0;

  // Whether the block that this labeller was made for has ended, so that what follows is another's.
  virtual bool is_done() const { return false; }
};

}  // namespace winnow::roles
