// The list of eviction methods. Adding one: a file in scorers/, its maker's declaration and a row here.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "policy/option_reader.h"
#include "policy/scorer.h"

namespace winnow::policy {

struct Method {
  std::string_view name;        // as users type it
  std::string_view signal;      // what the worth comes from: none, position, key, …
  bool is_path_independent;     // given K and V, the kept rows do not depend on how the input was cut
  std::unique_ptr<Scorer> (*make)(OptionReader&);  // null: the method keeps everything
  std::string_view help;
};

std::unique_ptr<Scorer> make_knorm(OptionReader&);
std::unique_ptr<Scorer> make_random(OptionReader&);
std::unique_ptr<Scorer> make_streaming(OptionReader&);

// Sorted by name.
inline constexpr Method kMethods[] = {
    {"full", "none", true, nullptr, "keeps every row: the full cache"},
    {"knorm", "key", true, make_knorm, "keeps the rows whose keys have the lowest L2 norm"},
    {"random", "none", true, make_random, "keeps rows at random: the floor any method must beat"},
    {"streaming", "position", true, make_streaming, "keeps the first n_sink and the last rows"},
};

}  // namespace winnow::policy
