#include "policy/transforms.h"

#include <iterator>

namespace winnow::policy {

const TransformPart* find_transform(std::string_view name) {
  const auto* const part = std::ranges::find(kTransforms, name, &TransformPart::name);
  return part == std::end(kTransforms) ? nullptr : part;
}

std::vector<OptionDescription> describe_options(const TransformPart& part) {
  OptionReader reader;
  if (part.make_normalizer != nullptr) {
    part.make_normalizer(reader);
  } else {
    part.make_second_stage(reader);
  }
  return reader.descriptions();
}

std::vector<std::string> describe_needs(const TransformPart& part) {
  OptionReader reader;
  return part.make_second_stage == nullptr ? std::vector<std::string>{}
                                           : describe(part.make_second_stage(reader)->needs());
}

}  // namespace winnow::policy
