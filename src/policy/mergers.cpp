#include "policy/mergers.h"

#include <iterator>

namespace winnow::policy {

const MergerPart* find_merger(std::string_view name) {
  const auto* const part = std::ranges::find(kMergers, name, &MergerPart::name);
  return part == std::end(kMergers) ? nullptr : part;
}

std::vector<OptionDescription> describe_options(const MergerPart& part) {
  OptionReader reader;
  part.make(reader);
  return reader.descriptions();
}

std::vector<std::string> describe_needs(const MergerPart& part) {
  OptionReader reader;
  return describe(part.make(reader)->needs());
}

}  // namespace winnow::policy
