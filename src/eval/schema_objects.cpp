#include "eval/schema_objects.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;

constexpr int kNumbers = 100;

const std::vector<std::string>& spelling_words() {
  static const std::vector<std::string> words = {
      "alpha",  "bravo", "charlie", "delta",  "echo",     "foxtrot", "golf",   "hotel",  "india",
      "juliet", "kilo",  "lima",    "mike",   "november", "oscar",   "papa",   "quebec", "romeo",
      "sierra", "tango", "uniform", "victor", "whiskey",  "xray",    "yankee", "zulu"};
  return words;
}

const std::vector<char>& letters_and_digits() {
  static const std::string_view text = "abcdefghijklmnopqrstuvwxyz0123456789";
  static const std::vector<char> characters(text.begin(), text.end());
  return characters;
}

// One that the object does not have yet.
std::string draw_name(std::set<std::string>& names, PythonRandom& random) {
  for (;;) {
    std::string name = random.choice(spelling_words());
    name += "_" + std::to_string(random.between(0, kNumbers - 1));
    if (names.insert(name).second) {
      return name;
    }
  }
}

std::string draw_value(PythonRandom& random) {
  const auto n = static_cast<int>(random.between(4, 16));
  const std::vector<char> characters = random.choices(letters_and_digits(), n);
  return {characters.begin(), characters.end()};
}

void draw_member(const std::string& name, PythonRandom& random, std::vector<SchemaLeaf>& leaves) {
  std::set<std::string> objects;
  for (int64_t n_objects = random.between(2, 4); n_objects > 0; --n_objects) {
    const std::string object = draw_name(objects, random);
    std::set<std::string> keys;
    for (int64_t n_leaves = random.between(2, 4); n_leaves > 0; --n_leaves) {
      std::string key = draw_name(keys, random);
      leaves.push_back({{name, object, std::move(key)}, draw_value(random)});
    }
  }
}

// Names of the root, of its members, of theirs, which are values.
ordered_json as_json(std::span<const SchemaLeaf> leaves) {
  ordered_json root = ordered_json::object();
  for (const SchemaLeaf& leaf : leaves) {
    root[leaf.path[0]][leaf.path[1]][leaf.path[2]] = leaf.value;
  }
  return root;
}

std::string write_json(std::span<const SchemaLeaf> leaves) {
  return as_json(leaves).dump(2);
}

std::string write_compact(std::span<const SchemaLeaf> leaves) {
  return as_json(leaves).dump();
}

std::string write_xml(std::span<const SchemaLeaf> leaves) {
  const ordered_json root = as_json(leaves);
  std::string text = "<root>\n";
  for (const auto& [name, objects] : root.items()) {
    text += "  <" + name + ">\n";
    for (const auto& [object, values] : objects.items()) {
      text += "    <" + object + ">\n";
      for (const auto& [key, value] : values.items()) {
        text += "      <" + key + ">" + value.get<std::string>() + "</" + key + ">\n";
      }
      text += "    </" + object + ">\n";
    }
    text += "  </" + name + ">\n";
  }
  return text + "</root>";
}

std::string write_xml_attributes(std::span<const SchemaLeaf> leaves) {
  const ordered_json root = as_json(leaves);
  std::string text = "<root>\n";
  for (const auto& [name, objects] : root.items()) {
    text += "  <" + name + ">\n";
    for (const auto& [object, values] : objects.items()) {
      text += "    <" + object;
      for (const auto& [key, value] : values.items()) {
        text += " " + key + "=\"" + value.get<std::string>() + "\"";
      }
      text += "/>\n";
    }
    text += "  </" + name + ">\n";
  }
  return text + "</root>";
}

// What YAML might read as something else than text is quoted.
std::string yaml_scalar(const std::string& value) {
  static const std::set<std::string_view> words = {"null", "true", "false"};
  const bool is_plain = (value.front() < '0' || value.front() > '9') && !words.contains(value);
  return is_plain ? value : "\"" + value + "\"";
}

std::string write_yaml(std::span<const SchemaLeaf> leaves) {
  const ordered_json root = as_json(leaves);
  std::string text;
  for (const auto& [name, objects] : root.items()) {
    text += (text.empty() ? "" : "\n") + name + ":";
    for (const auto& [object, values] : objects.items()) {
      text += "\n  " + object + ":";
      for (const auto& [key, value] : values.items()) {
        text += "\n    " + key + ": " + yaml_scalar(value.get<std::string>());
      }
    }
  }
  return text;
}

constexpr std::array<std::string_view, 4> kColumns = {"group", "object", "key", "value"};

std::string write_csv(std::span<const SchemaLeaf> leaves) {
  std::string text;
  for (const std::string_view column : kColumns) {
    text.append(text.empty() ? "" : ",").append(column);
  }
  for (const SchemaLeaf& leaf : leaves) {
    text += "\n";
    for (const std::string& name : leaf.path) {
      text += name + ",";
    }
    text += leaf.value;
  }
  return text;
}

std::string write_markdown(std::span<const SchemaLeaf> leaves) {
  std::string text = "|";
  std::string rule = "\n|";
  for (const std::string_view column : kColumns) {
    text.append(" ").append(column).append(" |");
    rule += " --- |";
  }
  text += rule;
  for (const SchemaLeaf& leaf : leaves) {
    text += "\n|";
    for (const std::string& name : leaf.path) {
      text += " " + name + " |";
    }
    text += " " + leaf.value + " |";
  }
  return text;
}

constexpr SchemaFormat kFormats[] = {
    {"json", write_json},        {"compact", write_compact},
    {"xml", write_xml},          {"xml-attributes", write_xml_attributes},
    {"yaml", write_yaml},        {"csv", write_csv},
    {"markdown", write_markdown}};

}  // namespace

std::string SchemaLeaf::dotted_path() const {
  return path[0] + "." + path[1] + "." + path[2];
}

std::vector<SchemaLeaf> draw_leaves(int n, PythonRandom& random) {
  WINNOW_CHECK(n > 0);
  const size_t most_members = spelling_words().size() * kNumbers;
  const auto n_wanted = static_cast<size_t>(n);
  std::vector<SchemaLeaf> leaves;
  std::set<std::string> names;
  while (leaves.size() < n_wanted && names.size() < most_members) {
    const std::string name = draw_name(names, random);
    draw_member(name, random, leaves);
  }
  leaves.resize(std::min(leaves.size(), n_wanted));
  return leaves;
}

std::span<const SchemaFormat> schema_formats() {
  return kFormats;
}

}  // namespace winnow::eval
