// The list of allocators. Adding one: a file in allocators/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policy/allocator.h"
#include "policy/option_reader.h"
#include "policy/transform.h"

namespace winnow::policy {

// What divides a layer's rows by the same numbers as the budget over the layers.
struct LayersAndHeads {
  std::unique_ptr<LayerAllocator> layers;
  std::unique_ptr<HeadAllocator> heads;
};

struct AllocatorPart {
  std::string_view name;  // as users type it
  bool divides_layers;    // what it decides, so that two parts do not decide the same
  bool divides_heads;
  // One of the four, where the last divides the rows of a head. Called with an empty reader to describe the options.
  std::unique_ptr<LayerAllocator> (*make_layers)(OptionReader&);
  std::unique_ptr<HeadAllocator> (*make_heads)(OptionReader&);
  LayersAndHeads (*make_both)(OptionReader&);
  std::unique_ptr<SecondStage> (*make_rows)(OptionReader&);
  std::string_view help;
  // Options that it gives where the spec does not, as a spec has them.
  std::string_view implied = "";
};

std::unique_ptr<HeadAllocator> make_adakv(OptionReader&);
std::unique_ptr<HeadAllocator> make_pool(OptionReader&);
std::unique_ptr<HeadAllocator> make_uniform(OptionReader&);
std::unique_ptr<LayerAllocator> make_cake(OptionReader&);
std::unique_ptr<LayerAllocator> make_pyramid(OptionReader&);
std::unique_ptr<LayerAllocator> make_pyramid_seed(OptionReader&);
std::unique_ptr<LayerAllocator> make_simlayer(OptionReader&);
std::unique_ptr<LayerAllocator> make_squeeze(OptionReader&);
std::unique_ptr<LayerAllocator> make_squeeze_seed(OptionReader&);
LayersAndHeads make_table(OptionReader&);
std::unique_ptr<SecondStage> make_roles(OptionReader&);

inline constexpr AllocatorPart kAllocators[] = {
    {"adakv", false, true, nullptr, make_adakv, nullptr, nullptr,
     "the heads of a layer share its budget: the best rows among all of them stay"},
    {"cake", true, false, make_cake, nullptr, nullptr, nullptr,
     "layers keep more rows the wider and the less steady the attention of the last queries is"},
    {"pool", true, true, nullptr, make_pool, nullptr, nullptr,
     "all heads of all layers share the budget: the best rows among all of them stay"},
    {"pyramid", true, false, make_pyramid, nullptr, nullptr, nullptr,
     "early layers keep more rows than late ones, falling linearly"},
    {"pyramid@seed", true, false, make_pyramid_seed, nullptr, nullptr, nullptr,
     "pyramid as another implementation has it, steeper"},
    {"roles", false, false, nullptr, nullptr, nullptr, make_roles,
     "the rows of a head are divided over what their tokens are there for: values before keys",
     "protect=template+question"},
    {"simlayer", true, false, make_simlayer, nullptr, nullptr, nullptr,
     "layers that look at little but the first and the last rows keep few"},
    {"squeeze", true, false, make_squeeze, nullptr, nullptr, nullptr,
     "layers keep fewer rows whose attention changed least while prompts were read"},
    {"squeeze@seed", true, false, make_squeeze_seed, nullptr, nullptr, nullptr,
     "layers whose keys point in one direction keep fewer rows"},
    {"table", true, true, nullptr, nullptr, make_table, nullptr,
     "layers, or the heads of each, keep what a file says"},
    {"uniform", true, true, nullptr, make_uniform, nullptr, nullptr,
     "every KV head keeps the same number of rows; what there is without an allocator"},
};
static_assert(std::ranges::is_sorted(kAllocators, {}, &AllocatorPart::name),
              "kAllocators is sorted by name");

// Null where there is none of that name.
const AllocatorPart* find_allocator(std::string_view name);

std::vector<OptionDescription> describe_options(const AllocatorPart& part);

// What it reads, with its options at their defaults (describe_needs() in policy/methods.h).
std::vector<std::string> describe_needs(const AllocatorPart& part);

}  // namespace winnow::policy
