// winnow methods: the lists of eviction methods and allocators, from the tables that the program itself uses.

#include "policy/methods.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/output.h"
#include "cli/verbs.h"
#include "policy/allocators.h"
#include "policy/policy.h"

namespace winnow::cli {
namespace {

using nlohmann::ordered_json;
using policy::OptionDescription;

ordered_json options_json(const std::vector<OptionDescription>& options) {
  ordered_json list = ordered_json::array();
  for (const OptionDescription& option : options) {
    list.push_back({{"name", option.name},
                    {"type", option.type},
                    {"default", option.default_value},
                    {"range", option.range},
                    {"help", option.help}});
  }
  return list;
}

ordered_json methods_json() {
  ordered_json methods = ordered_json::array();
  for (const policy::Method& method : policy::kMethods) {
    methods.push_back({{"name", method.name},
                       {"class", method.kind},
                       {"needs", policy::describe_needs(method)},
                       {"path_independent", method.is_path_independent},
                       {"cost", method.cost},
                       {"help", method.help},
                       {"options", options_json(policy::describe_options(method))}});
  }
  ordered_json allocators = ordered_json::array();
  for (const policy::AllocatorPart& part : policy::kAllocators) {
    ordered_json divides = ordered_json::array();
    if (part.divides_layers) {
      divides.push_back("layers");
    }
    if (part.divides_heads) {
      divides.push_back("heads");
    }
    allocators.push_back({{"name", part.name},
                          {"divides", std::move(divides)},
                          {"help", part.help},
                          {"options", options_json(policy::describe_options(part))}});
  }
  return {{"methods", std::move(methods)},
          {"allocators", std::move(allocators)},
          {"policy_options", options_json(policy::describe_policy_options())}};
}

void print_options(const std::vector<OptionDescription>& options, const char* indent) {
  for (const OptionDescription& option : options) {
    const std::string standard =
        option.default_value.empty() ? "" : "; default " + option.default_value;
    const std::string range = option.range.empty() ? "" : " (" + option.range + standard + ")";
    std::printf("%s%-12s %s%s\n", indent, option.name.c_str(), option.help.c_str(), range.c_str());
  }
}

template <typename Part>
void print_part(const Part& part) {
  std::printf("%-10s %s\n", std::string(part.name).c_str(), std::string(part.help).c_str());
  print_options(policy::describe_options(part), "             ");
}

void print_text() {
  for (const policy::Method& method : policy::kMethods) {
    print_part(method);
  }
  std::printf("\nallocators, after any method but full:\n");
  for (const policy::AllocatorPart& part : policy::kAllocators) {
    print_part(part);
  }
  std::printf("\nevery method but full:\n");
  print_options(policy::describe_policy_options(), "  ");
  std::printf(
      "\na policy: METHOD[+ALLOCATOR...][:OPTION=VALUE,...], for example "
      "knorm+adakv:budget=512,n_sink=4\n");
}

}  // namespace

Verb add_methods(CLI::App& app) {
  const auto is_json = std::make_shared<bool>(false);
  app.add_flag("--json", *is_json, "print the list as JSON");
  return [is_json] {
    if (*is_json) {
      write_output(methods_json().dump(2) + "\n");
    } else {
      print_text();
      write_output("");
    }
    return 0;
  };
}

}  // namespace winnow::cli
