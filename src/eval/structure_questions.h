// Questions about structured text, made from the text alone: what stands at a path, how many there are of something, what an
// attribute is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::eval {

enum class StructureKind { kValue, kCount, kAttribute };

struct StructureQuestion {
  StructureKind kind;
  std::string question;
  std::string answer;
};

// The scalars of a document, from the first to before the last, each with what contains it; empty arrays and objects count as
// one. What comes before an element of an array and is left out moves it forward.
nlohmann::ordered_json part_of(const nlohmann::ordered_json& document, int begin, int end);
int n_scalars(const nlohmann::ordered_json& document);

// Values: of short strings, numbers, true and false. Counts: of arrays and objects with 2 to 20 entries. Paths are written
// a.b[2].c, with names that are not plain in brackets and quotes.
std::vector<StructureQuestion> json_questions(const nlohmann::ordered_json& document);

// Of a text that need not be whole. Values: of elements that hold nothing but a short text, under a name that there is once.
// Attributes: that elements of their name have once. Counts: of elements, 2 to 20 of a name.
std::vector<StructureQuestion> xml_questions(std::string_view text);

}  // namespace winnow::eval
