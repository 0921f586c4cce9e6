#include "policy/allocators.h"

#include <iterator>

#include "base/error.h"
#include "base/nearest_name.h"

namespace winnow::policy {

const AllocatorPart& find_allocator(std::string_view name) {
  const auto part = std::ranges::find(kAllocators, name, &AllocatorPart::name);
  if (part != std::end(kAllocators)) {
    return *part;
  }
  std::vector<std::string_view> names;
  std::ranges::transform(kAllocators, std::back_inserter(names), &AllocatorPart::name);
  throw Error(ErrorCode::kInvalidArgument, unknown_name("allocator", name, names));
}

std::vector<OptionDescription> describe_options(const AllocatorPart& part) {
  OptionReader reader;
  if (part.make_layers != nullptr) {
    part.make_layers(reader);
  }
  if (part.make_heads != nullptr) {
    part.make_heads(reader);
  }
  return reader.descriptions();
}

}  // namespace winnow::policy
