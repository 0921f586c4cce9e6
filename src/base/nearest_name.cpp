#include "base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace winnow {
namespace {

// Levenshtein's distance: insertions, deletions and replacements, one row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's prefix to every prefix of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view given, std::span<const std::string_view> names) {
  std::string_view nearest;
  size_t smallest = given.size() / 3 + 2;  // further away is another word, not a slip
  for (const std::string_view name : names) {
    const size_t distance = edit_distance(given, name);
    if (distance < smallest) {
      smallest = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string unknown_name(std::string_view kind, std::string_view given,
                         std::span<const std::string_view> names) {
  std::string text = "unknown " + std::string(kind) + " '" + std::string(given) + "' (";
  const std::string_view nearest = nearest_name(given, names);
  if (!nearest.empty()) {
    text += "did you mean '" + std::string(nearest) + "'? ";
  }
  text += "allowed: ";
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  return text + ")";
}

}  // namespace winnow
