// The list of allocators. Adding one: a file in allocators/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "policy/allocator.h"
#include "policy/option_reader.h"

namespace winnow::policy {

struct AllocatorPart {
  std::string_view name;  // as users type it
  bool divides_layers;    // what it decides, so that two parts do not decide the same
  bool divides_heads;
  // One of the two, or none for what is done without. Called with an empty reader to describe the options.
  std::unique_ptr<LayerAllocator> (*make_layers)(OptionReader&);
  std::unique_ptr<HeadAllocator> (*make_heads)(OptionReader&);
  std::string_view help;
};

std::unique_ptr<HeadAllocator> make_adakv(OptionReader&);
std::unique_ptr<HeadAllocator> make_pool(OptionReader&);
std::unique_ptr<HeadAllocator> make_uniform(OptionReader&);
std::unique_ptr<LayerAllocator> make_pyramid(OptionReader&);

inline constexpr AllocatorPart kAllocators[] = {
    {"adakv", false, true, nullptr, make_adakv,
     "the heads of a layer share its budget: the best rows among all of them stay"},
    {"pool", true, true, nullptr, make_pool,
     "all heads of all layers share the budget: the best rows among all of them stay"},
    {"pyramid", true, false, make_pyramid, nullptr,
     "early layers keep more rows than late ones, falling linearly"},
    {"uniform", true, true, nullptr, make_uniform,
     "every KV head keeps the same number of rows; what there is without an allocator"},
};
static_assert(std::ranges::is_sorted(kAllocators, {}, &AllocatorPart::name),
              "kAllocators is sorted by name");

// Null where there is none of that name.
const AllocatorPart* find_allocator(std::string_view name);

std::vector<OptionDescription> describe_options(const AllocatorPart& part);

}  // namespace winnow::policy
