#include "policy/methods.h"

#include <gtest/gtest.h>

#include <set>

namespace winnow::policy {
namespace {

TEST(Methods, EveryNameIsUniqueAndFound) {
  std::set<std::string_view> names;
  for (const Method& method : kMethods) {
    EXPECT_TRUE(names.insert(method.name).second) << method.name;
    EXPECT_EQ(&find_method(method.name), &method);
    EXPECT_FALSE(method.kind.empty());
    EXPECT_FALSE(method.help.empty());
  }
}

TEST(Methods, DefaultsOfEveryOptionAreAllowed) {
  for (const Method& method : kMethods) {
    std::vector<GivenOption> defaults;
    for (const OptionDescription& option : describe_options(method)) {
      defaults.push_back({option.name, option.default_value});
    }
    OptionReader reader(defaults);
    if (method.needs_file) {
      continue;
    }
    if (method.make != nullptr) {
      method.make(reader);
    }
    reader.refuse_unknown();
    EXPECT_TRUE(reader.problems().empty()) << method.name << ": " << reader.problems().front();
  }
}

}  // namespace
}  // namespace winnow::policy
