// The list of mergers. Adding one: a file in mergers/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policy/merger.h"
#include "policy/option_reader.h"

namespace winnow::policy {

struct MergerPart {
  std::string_view name;  // as users type it
  // Called with an empty reader to describe the options.
  std::unique_ptr<Merger> (*make)(OptionReader&);
  std::string_view cost;  // of each eviction, beside those of the other parts
  std::string_view help;
};

std::unique_ptr<Merger> make_cam(OptionReader&);
std::unique_ptr<Merger> make_merge(OptionReader&);
std::unique_ptr<Merger> make_think(OptionReader&);

inline constexpr MergerPart kMergers[] = {
    {"cam", make_cam, "reads the values of the rows that go, and of up to 32 after each",
     "rows that go leave their values, at random by the attention they received, to the rows after "
     "them"},
    {"merge", make_merge,
     "a product of the key of each row that goes with the keys of all that stay; reads the values "
     "that are merged",
     "rows that go are averaged into the values of those with the most similar keys"},
    {"think", make_think, "reads the keys of all rows that stay",
     "the channels of keys that the last queries get least from are 0 in the rows that stay; saves "
     "no memory"},
};
static_assert(std::ranges::is_sorted(kMergers, {}, &MergerPart::name),
              "kMergers is sorted by name");

// Null where there is none of that name.
const MergerPart* find_merger(std::string_view name);

std::vector<OptionDescription> describe_options(const MergerPart& part);

// What it reads, with its options at their defaults (describe_needs() in policy/methods.h).
std::vector<std::string> describe_needs(const MergerPart& part);

}  // namespace winnow::policy
