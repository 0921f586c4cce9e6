#include "policy/readers.h"

#include <iterator>

namespace winnow::policy {

const ReaderPart* find_reader(std::string_view name) {
  const auto* const part = std::ranges::find(kReaders, name, &ReaderPart::name);
  return part == std::end(kReaders) ? nullptr : part;
}

std::vector<OptionDescription> describe_options(const ReaderPart& part) {
  OptionReader reader;
  part.make(reader);
  return reader.descriptions();
}

}  // namespace winnow::policy
