// winnow methods: the lists of eviction methods, transforms, allocators and mergers, from the tables that the program itself uses.
// Its Markdown is docs/methods.md.

#include "policy/methods.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "policy/allocators.h"
#include "policy/mergers.h"
#include "policy/policy.h"
#include "policy/readers.h"
#include "policy/transforms.h"

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

std::vector<std::string> divides(const policy::AllocatorPart& part) {
  std::vector<std::string> list;
  if (part.divides_layers) {
    list.emplace_back("layers");
  }
  if (part.divides_heads) {
    list.emplace_back("heads");
  }
  if (part.make_rows != nullptr) {
    list.emplace_back("roles");
  }
  return list;
}

// What a transform decides: scores, before allocators compare them, or a head's rows, after.
std::string_view decides(const policy::TransformPart& part) {
  return part.make_normalizer != nullptr ? "scores" : "rows";
}

// A method with one value of the option `positions`, and what becomes of the rows that it keeps.
struct Arm {
  std::string spec;
  std::string positions;
  std::string re_rotation;
  std::string guard;
};

bool is_allowed(const std::string& spec) {
  try {
    policy::Policy::parse(spec);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Arm> arms() {
  const auto options = policy::describe_policy_options();
  const auto option = std::ranges::find(options, "positions", &OptionDescription::name);
  std::vector<Arm> arms;
  for (const policy::Method& method : policy::kMethods) {
    std::istringstream values(method.make == nullptr ? "" : option->range);
    for (std::string value; std::getline(values, value, '|');) {
      const std::string name(method.name);
      const policy::Policy policy = policy::Policy::parse("knorm:budget=64,positions=" + value);
      const bool is_contiguous = policy.is_contiguous();
      // What is allowed without the option, and not with it; some methods want a file, with it or without.
      const std::string with_budget = name + ":budget=64";
      const bool is_refused =
          is_allowed(with_budget) && !is_allowed(with_budget + ",positions=" + value);
      if (is_refused || policy.is_stalled()) {  // a fault is no arm
        continue;
      }
      const bool is_default = value == option->default_value;
      arms.push_back({.spec = is_default ? name : name + ":positions=" + value,
                      .positions = is_contiguous ? "contiguous" : "preserved, gapped",
                      .re_rotation = is_contiguous ? "as keys are read" : "no",
                      .guard = std::string(method.own_guard)});
    }
  }
  return arms;
}

ordered_json arms_json() {
  ordered_json list = ordered_json::array();
  for (const Arm& arm : arms()) {
    list.push_back({{"policy", arm.spec},
                    {"positions", arm.positions},
                    {"re_rotation", arm.re_rotation},
                    {"own_guard", arm.guard}});
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
                       {"slack", method.slack},
                       {"cost", method.cost},
                       {"help", method.help},
                       {"options", options_json(policy::describe_options(method))}});
  }
  ordered_json transforms = ordered_json::array();
  for (const policy::TransformPart& part : policy::kTransforms) {
    transforms.push_back({{"name", part.name},
                          {"decides", decides(part)},
                          {"needs", policy::describe_needs(part)},
                          {"cost", part.cost},
                          {"help", part.help},
                          {"options", options_json(policy::describe_options(part))}});
  }
  ordered_json allocators = ordered_json::array();
  for (const policy::AllocatorPart& part : policy::kAllocators) {
    allocators.push_back({{"name", part.name},
                          {"divides", divides(part)},
                          {"needs", policy::describe_needs(part)},
                          {"help", part.help},
                          {"options", options_json(policy::describe_options(part))}});
  }
  ordered_json mergers = ordered_json::array();
  for (const policy::MergerPart& part : policy::kMergers) {
    mergers.push_back({{"name", part.name},
                       {"needs", policy::describe_needs(part)},
                       {"cost", part.cost},
                       {"help", part.help},
                       {"options", options_json(policy::describe_options(part))}});
  }
  ordered_json readers = ordered_json::array();
  for (const policy::ReaderPart& part : policy::kReaders) {
    readers.push_back({{"name", part.name},
                       {"cost", part.cost},
                       {"help", part.help},
                       {"options", options_json(policy::describe_options(part))}});
  }
  return {{"methods", std::move(methods)},
          {"transforms", std::move(transforms)},
          {"allocators", std::move(allocators)},
          {"mergers", std::move(mergers)},
          {"readers", std::move(readers)},
          {"policy_options", options_json(policy::describe_policy_options())},
          {"arms", arms_json()}};
}

// A cell of a Markdown table.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, 1, '\\');
  }
  return " " + text + (text.empty() ? "|" : " |");
}

std::string code(std::string_view name) {
  return "`" + std::string(name) + "`";
}

std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& each : cells) {
    text += cell(each);
  }
  return text + "\n";
}

std::string table_head(const std::vector<std::string>& titles) {
  std::string text = row(titles) + "|";
  for (size_t i = 0; i < titles.size(); ++i) {
    text += "---|";
  }
  return text + "\n";
}

std::string list_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

std::string options_markdown(const std::vector<OptionDescription>& options) {
  if (options.empty()) {
    return "No options of its own.\n";
  }
  std::string text = table_head({"option", "type", "default", "range", "meaning"});
  for (const OptionDescription& option : options) {
    const std::string standard = option.default_value.empty() ? "" : code(option.default_value);
    text += row({code(option.name), option.type, standard, option.range, option.help});
  }
  return text;
}

// A heading, what the part does, its options.
template <typename Part>
std::string part_markdown(const Part& part) {
  std::string help(part.help);
  help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
  return "\n### " + std::string(part.name) + "\n\n" + help + ".\n\n" +
         options_markdown(policy::describe_options(part));
}

std::string methods_markdown() {
  std::string text =
      "# The parts of a policy\n\n"
      "<!-- Written by `winnow methods --markdown`; a test compares the two. -->\n\n"
      "What a policy `METHOD[+TRANSFORM...][+ALLOCATOR...][+MERGER][+READER][:OPTION=VALUE,...]` "
      "may be made of; "
      "[policies.md](policies.md) says how the "
      "parts work together\nand where each comes from. `winnow methods --json` prints the same for "
      "programs.\n\n"
      "## Methods\n\n"
      "Path independent: given keys and values, the kept rows do not depend on how often and when "
      "rows were evicted on the "
      "way.\nWhat a method needs is that of its default options; the cost is that of each "
      "eviction, beside selection.\n\n";
  text += table_head({"method", "class", "needs", "path independent", "cost"});
  for (const policy::Method& method : policy::kMethods) {
    text += row({"[" + std::string(method.name) + "](#" + std::string(method.name) + ")",
                 std::string(method.kind), list_text(policy::describe_needs(method)),
                 method.is_path_independent ? "yes" : "no", std::string(method.cost)});
  }
  for (const policy::Method& method : policy::kMethods) {
    text += part_markdown(method);
  }
  text += "\n## Transforms\n\n";
  text += table_head({"transform", "decides", "needs", "cost"});
  for (const policy::TransformPart& part : policy::kTransforms) {
    text += row({"[" + std::string(part.name) + "](#" + std::string(part.name) + ")",
                 std::string(decides(part)), list_text(policy::describe_needs(part)),
                 std::string(part.cost)});
  }
  for (const policy::TransformPart& part : policy::kTransforms) {
    text += part_markdown(part);
  }
  text += "\n## Allocators\n\n";
  text += table_head({"allocator", "divides the budget over", "needs"});
  for (const policy::AllocatorPart& part : policy::kAllocators) {
    text += row({"[" + std::string(part.name) + "](#" + std::string(part.name) + ")",
                 list_text(divides(part)), list_text(policy::describe_needs(part))});
  }
  for (const policy::AllocatorPart& part : policy::kAllocators) {
    text += part_markdown(part);
  }
  text += "\n## Mergers\n\n";
  text += table_head({"merger", "needs", "cost"});
  for (const policy::MergerPart& part : policy::kMergers) {
    text += row({"[" + std::string(part.name) + "](#" + std::string(part.name) + ")",
                 list_text(policy::describe_needs(part)), std::string(part.cost)});
  }
  for (const policy::MergerPart& part : policy::kMergers) {
    text += part_markdown(part);
  }
  text += "\n## Readers\n\n";
  text += table_head({"reader", "cost"});
  for (const policy::ReaderPart& part : policy::kReaders) {
    text += row({code("+" + std::string(part.name)), std::string(part.cost)});
  }
  for (const policy::ReaderPart& part : policy::kReaders) {
    text += part_markdown(part);
  }
  text += "\n## Options of every method but full\n\n" +
          options_markdown(policy::describe_policy_options());
  text +=
      "\n## Positions\n\n"
      "Where attention sees the rows that are kept, and which of the last rows a method keeps of "
      "its "
      "own accord. Beside these\n`n_recent` protects the last rows under every method: a quarter "
      "of the budget, with `preset=paper` none.\n\n";
  text += table_head({"policy", "positions after eviction", "keys rotated again", "own guard"});
  for (const Arm& arm : arms()) {
    text += row({code(arm.spec), arm.positions, arm.re_rotation, arm.guard});
  }
  return text;
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
  std::printf("\ntransforms, after any method but full:\n");
  for (const policy::TransformPart& part : policy::kTransforms) {
    print_part(part);
  }
  std::printf("\nallocators, after any method but full:\n");
  for (const policy::AllocatorPart& part : policy::kAllocators) {
    print_part(part);
  }
  std::printf("\nmergers, after any method but full:\n");
  for (const policy::MergerPart& part : policy::kMergers) {
    print_part(part);
  }
  std::printf("\nreaders, after any method but full:\n");
  for (const policy::ReaderPart& part : policy::kReaders) {
    print_part(part);
  }
  std::printf("\nevery method but full:\n");
  print_options(policy::describe_policy_options(), "  ");
  std::printf(
      "\na policy: METHOD[+TRANSFORM...][+ALLOCATOR...][+MERGER][+READER][:OPTION=VALUE,...], for "
      "example "
      "knorm+adakv:budget=512,n_sink=4\n");
}

}  // namespace

Verb add_methods(CLI::App& app) {
  const auto is_json = std::make_shared<bool>(false);
  const auto is_markdown = std::make_shared<bool>(false);
  CLI::Option* const json = app.add_flag("--json", *is_json, "print the list as JSON");
  app.add_flag("--markdown", *is_markdown, "print the list as a document")->excludes(json);
  return [is_json, is_markdown] {
    if (*is_json || *is_markdown) {
      write_output(*is_json ? methods_json().dump(2) + "\n" : methods_markdown());
    } else {
      print_text();
      write_output("");
    }
    return 0;
  };
}

}  // namespace winnow::cli
