// The list of readers: the optional part that says which of the rows that are kept a generated token reads. They free
// nothing. Adding one: a file in readers/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernels/page_reads.h"
#include "policy/option_reader.h"

namespace winnow::policy {

struct ReaderPart {
  std::string_view name;  // as users type it
  // Called with an empty reader to describe the options.
  kernels::PageRule (*make)(OptionReader&);
  std::string_view cost;  // of each generated token
  std::string_view help;
};

kernels::PageRule make_quest_reader(OptionReader&);
kernels::PageRule make_rocketkv(OptionReader&);

inline constexpr ReaderPart kReaders[] = {
    {"quest", make_quest_reader,
     "reads two bounds of the keys of each page, and the rows of those that are chosen",
     "generated tokens read only the pages of rows whose keys may reach farthest along their "
     "queries"},
    {"rocketkv", make_rocketkv,
     "reads two bounds of the keys of each page of a few rows, and the rows of those that are "
     "chosen",
     "generated tokens read about as much as so many rows hold: half of it rows of small pages, "
     "which are chosen as by quest, and by their strongest channels alone"},
};
static_assert(std::ranges::is_sorted(kReaders, {}, &ReaderPart::name),
              "kReaders is sorted by name");

// Null where there is none of that name.
const ReaderPart* find_reader(std::string_view name);

std::vector<OptionDescription> describe_options(const ReaderPart& part);

}  // namespace winnow::policy
