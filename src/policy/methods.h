// The list of eviction methods. Adding one: a file in scorers/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "policy/option_reader.h"
#include "policy/scorer.h"

namespace winnow::policy {

struct Method {
  std::string_view name;     // as users type it
  std::string_view signal;   // what the worth comes from: none, position, key, …
  bool is_path_independent;  // given K and V, the kept rows do not depend on how the input was cut
  // Null: the method keeps everything. Called with an empty reader to describe the method's options, so a maker
  // opens no file and does not throw.
  std::unique_ptr<Scorer> (*make)(OptionReader&);
  std::string_view help;
};

std::unique_ptr<Scorer> make_keydiff(OptionReader&);
std::unique_ptr<Scorer> make_knorm(OptionReader&);
std::unique_ptr<Scorer> make_lagkv(OptionReader&);
std::unique_ptr<Scorer> make_random(OptionReader&);
std::unique_ptr<Scorer> make_streaming(OptionReader&);

inline constexpr Method kMethods[] = {
    {"full", "none", true, nullptr, "keeps every row: the full cache"},
    {"keydiff", "key", false, make_keydiff,
     "keeps the rows whose keys point elsewhere than the mean key"},
    {"knorm", "key", true, make_knorm, "keeps the rows whose keys have the lowest L2 norm"},
    {"lagkv", "key, value", false, make_lagkv,
     "keeps the rows whose channels spread most, measured by the rows after them"},
    {"random", "none", true, make_random, "keeps rows at random: the floor any method must beat"},
    {"streaming", "position", true, make_streaming, "keeps the first n_sink and the last rows"},
};
static_assert(std::ranges::is_sorted(kMethods, {}, &Method::name), "kMethods is sorted by name");

// Throws invalid_argument with the nearest name and the list.
const Method& find_method(std::string_view name);

// A method's own options, without those every policy has (describe_policy_options()).
std::vector<OptionDescription> describe_options(const Method& method);

}  // namespace winnow::policy
