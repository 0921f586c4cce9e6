#include "policy/methods.h"

#include <iterator>

#include "base/error.h"
#include "base/nearest_name.h"

namespace winnow::policy {

const Method& find_method(std::string_view name) {
  const auto method = std::ranges::find(kMethods, name, &Method::name);
  if (method != std::end(kMethods)) {
    return *method;
  }
  std::vector<std::string_view> names;
  std::ranges::transform(kMethods, std::back_inserter(names), &Method::name);
  throw Error(ErrorCode::kInvalidArgument, unknown_name("method", name, names));
}

std::vector<OptionDescription> describe_options(const Method& method) {
  OptionReader reader;
  if (method.make != nullptr) {
    method.make(reader);
  }
  return reader.descriptions();
}

}  // namespace winnow::policy
