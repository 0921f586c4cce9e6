#include "eval/structure_questions.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "eval/scoring.h"
#include "roles/formats.h"
#include "roles/stream.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;
using roles::Role;

constexpr size_t kFewestEntries = 2;  // that are counted
constexpr size_t kMostEntries = 20;
constexpr size_t kLongestValue = 80;  // bytes
constexpr size_t kLongestPath = 160;

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-';
  });
}

bool is_answer(std::string_view value) {
  return value.size() <= kLongestValue && value.find('\n') == std::string_view::npos &&
         !normalise(value).empty();
}

std::string below(const std::string& path, const std::string& name) {
  if (!is_plain_name(name)) {
    return path + "[\"" + name + "\"]";
  }
  return path.empty() ? name : path + "." + name;
}

// Adds the scalars with numbers from begin to before end; n_seen is how many there were so far.
ordered_json copy_part(const ordered_json& node, int begin, int end, int& n_seen) {
  if (!node.is_structured() || node.empty()) {
    ++n_seen;
    return node;
  }
  ordered_json part = node.is_array() ? ordered_json::array() : ordered_json::object();
  for (const auto& [name, child] : node.items()) {
    const int n_before = n_seen;
    ordered_json copied = copy_part(child, begin, end, n_seen);
    if (n_seen <= begin || n_before >= end) {
      continue;
    }
    if (node.is_array()) {
      part.push_back(std::move(copied));
    } else {
      part[name] = std::move(copied);
    }
  }
  return part;
}

void add_questions(const ordered_json& node, const std::string& path,
                   std::vector<StructureQuestion>& questions) {
  if (path.size() > kLongestPath) {
    return;
  }
  if (!node.is_structured()) {
    const std::string value = node.is_string() ? node.get<std::string>() : node.dump();
    if (!node.is_null() && !path.empty() && is_answer(value)) {
      questions.push_back({StructureKind::kValue,
                           "What is the value at " + path + "? Answer with the value alone.",
                           value});
    }
    return;
  }
  if (!path.empty() && node.size() >= kFewestEntries && node.size() <= kMostEntries) {
    const std::string entries =
        node.is_array() ? "elements does the array" : "keys does the object";
    questions.push_back(
        {StructureKind::kCount,
         "How many " + entries + " at " + path + " have? Answer with the number alone.",
         std::to_string(node.size())});
  }
  for (const auto& [name, child] : node.items()) {
    add_questions(child, node.is_array() ? path + "[" + name + "]" : below(path, name), questions);
  }
}

// What is said of elements in a text: by name, and by name and attribute.
struct Elements {
  std::map<std::string, std::vector<std::string>> texts;  // of elements that hold a text alone
  std::map<std::string, size_t> counts;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> attributes;
};

Elements read_elements(std::string_view text) {
  Elements elements;
  std::string element;    // whose tag is read
  std::string attribute;  // whose value comes next
  std::string content;    // what stands behind the tag, and nothing else yet
  std::string_view mark;  // right before, but for white space
  for (const roles::Span& span : roles::label_text(text, roles::find_format("xml"))) {
    const std::string_view bytes = text.substr(span.begin, span.end - span.begin);
    const Role role = span.label.role;
    if (role == Role::kDelim && !content.empty()) {
      if (bytes.starts_with("</")) {
        elements.texts[element].push_back(content);
      }
      content.clear();
    }
    if (role == Role::kDelim && bytes.find('>') != std::string_view::npos) {
      attribute.clear();
      element = bytes.find("/>") == std::string_view::npos ? element : "";
    }
    if (role == Role::kKey && mark.ends_with("</")) {
      element.clear();
    } else if (role == Role::kKey && mark.ends_with('<')) {
      element = bytes;
      ++elements.counts[element];
    } else if (role == Role::kKey) {
      attribute = bytes;
    } else if (role == Role::kValue && !attribute.empty()) {
      elements.attributes[{element, attribute}].emplace_back(bytes);
      attribute.clear();
    } else if (role == Role::kValue && !element.empty()) {
      content += bytes;
    } else if (role == Role::kSpace && !content.empty()) {
      content += bytes;
    }
    if (role != Role::kSpace) {
      mark = role == Role::kDelim ? bytes : std::string_view();
    }
  }
  for (auto& [name, texts] : elements.texts) {
    std::ranges::transform(texts, texts.begin(),
                           [](const std::string& each) { return std::string(trim(each)); });
  }
  return elements;
}

}  // namespace

ordered_json part_of(const ordered_json& document, int begin, int end) {
  int n_seen = 0;
  return copy_part(document, begin, end, n_seen);
}

int n_scalars(const ordered_json& document) {
  if (!document.is_structured() || document.empty()) {
    return 1;
  }
  int n = 0;
  for (const ordered_json& child : document) {
    n += n_scalars(child);
  }
  return n;
}

std::vector<StructureQuestion> json_questions(const ordered_json& document) {
  std::vector<StructureQuestion> questions;
  add_questions(document, "", questions);
  return questions;
}

std::vector<StructureQuestion> xml_questions(std::string_view text) {
  const Elements elements = read_elements(text);
  std::vector<StructureQuestion> questions;
  for (const auto& [name, count] : elements.counts) {
    const auto texts = elements.texts.find(name);
    if (count == 1 && texts != elements.texts.end() && texts->second.size() == 1 &&
        is_answer(texts->second[0])) {
      questions.push_back(
          {StructureKind::kValue,
           "What is the text of the element <" + name + ">? Answer with the text alone.",
           texts->second[0]});
    }
    if (count >= kFewestEntries && count <= kMostEntries) {
      questions.push_back(
          {StructureKind::kCount,
           "How many elements <" + name + "> are there? Answer with the number alone.",
           std::to_string(count)});
    }
  }
  for (const auto& [names, values] : elements.attributes) {
    if (values.size() == 1 && is_answer(values[0])) {
      questions.push_back({StructureKind::kAttribute,
                           "What is the value of the attribute " + names.second +
                               " of the element <" + names.first +
                               ">? Answer with the value alone.",
                           values[0]});
    }
  }
  return questions;
}

}  // namespace winnow::eval
