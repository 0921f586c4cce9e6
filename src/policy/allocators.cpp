#include "policy/allocators.h"

#include <iterator>

namespace winnow::policy {

const AllocatorPart* find_allocator(std::string_view name) {
  const auto* const part = std::ranges::find(kAllocators, name, &AllocatorPart::name);
  return part == std::end(kAllocators) ? nullptr : part;
}

std::vector<OptionDescription> describe_options(const AllocatorPart& part) {
  OptionReader reader;
  if (part.make_layers != nullptr) {
    part.make_layers(reader);
  }
  if (part.make_heads != nullptr) {
    part.make_heads(reader);
  }
  if (part.make_both != nullptr) {
    part.make_both(reader);
  }
  if (part.make_rows != nullptr) {
    part.make_rows(reader);
  }
  return reader.descriptions();
}

std::vector<std::string> describe_needs(const AllocatorPart& part) {
  OptionReader reader;
  if (part.make_rows != nullptr) {
    return describe(part.make_rows(reader)->needs());
  }
  return part.make_layers == nullptr ? std::vector<std::string>{}
                                     : describe(part.make_layers(reader)->needs());
}

}  // namespace winnow::policy
