// Nested objects of random names and values, and the texts that they can be written as: prompts that are nothing but
// structure.
//
// Source    "Adaptive Filtering of the KV Cache: Diagnosing and Correcting Structural-Role Bias in LLM Inference", 2026: its
//           objects and its order of random calls. The study had its XML written by a language model; here all texts are
//           made by rules
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"

namespace winnow::eval {

struct SchemaLeaf {
  std::array<std::string, 3> path;  // names from the root on; those of an object are all different
  std::string value;                // 4 to 16 lower-case letters and digits

  std::string dotted_path() const;
};

// The first n leaves of an object whose members are drawn one after the other, each to its end; fewer where all names of the
// root are used. A member is a name, then 2 to 4 members, each of these a name and 2 to 4 leaves.
std::vector<SchemaLeaf> draw_leaves(int n, PythonRandom& random);

struct SchemaFormat {
  std::string_view name;
  // The whole text. Leaves of the same object follow each other.
  std::string (*write)(std::span<const SchemaLeaf>);
};

// Indented and compact JSON; XML with values in elements or attributes; YAML; CSV and a Markdown table with a row for each
// leaf.
std::span<const SchemaFormat> schema_formats();

}  // namespace winnow::eval
