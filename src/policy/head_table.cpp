#include "policy/head_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/nearest_name.h"

namespace winnow::policy {
namespace {

using nlohmann::json;

constexpr std::string_view kKeys[] = {"weights", "rows", "comment"};
constexpr double kMaxNumber = 1e9;
constexpr size_t kMaxSize = 1 << 16;  // of layers, and of heads in one

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kBadData, what);
}

double read_number(const json& value, const std::string& place) {
  if (!value.is_number()) {
    refuse(place + " is " + value.type_name() + ", not a number");
  }
  const auto number = value.get<double>();
  if (!(number >= 0 && number <= kMaxNumber)) {
    refuse(place + " is " + value.dump() + (number < 0 ? ", which is negative" : "") +
           " (allowed: 0 to 1e9)");
  }
  return number;
}

void check_size(const json& list, const std::string& place) {
  if (list.empty() || list.size() > kMaxSize) {
    refuse(place + " has " + std::to_string(list.size()) + " entries (allowed: 1 to " +
           std::to_string(kMaxSize) + ")");
  }
}

std::vector<double> read_layer(const json& layer, bool is_per_head, const std::string& place) {
  if (layer.is_array() != is_per_head) {
    refuse(place + (is_per_head ? " is not a list of heads, as the first layer is"
                                : " is a list of heads, and the first layer is a number"));
  }
  if (!is_per_head) {
    return {read_number(layer, place)};
  }
  check_size(layer, place);
  std::vector<double> heads;
  for (size_t head = 0; head < layer.size(); ++head) {
    heads.push_back(read_number(layer[head], place + "[" + std::to_string(head) + "]"));
  }
  return heads;
}

}  // namespace

double HeadTable::mean(int layer) const {
  const std::vector<double>& heads = layers[static_cast<size_t>(layer)];
  return std::accumulate(heads.begin(), heads.end(), 0.0) / static_cast<double>(heads.size());
}

HeadTable parse_head_table(std::string_view text) {
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded()) {
    refuse("it is not JSON (which has neither NaN nor infinity)");
  }
  if (!file.is_object()) {
    refuse(R"(it is no object (allowed: {"weights": [...]} or {"rows": [...]}))");
  }
  for (const auto& [key, value] : file.items()) {
    if (std::ranges::find(kKeys, key) == std::end(kKeys)) {
      refuse(unknown_name("key", key, kKeys));
    }
  }
  if (file.contains("weights") == file.contains("rows")) {
    refuse(R"(it needs either "weights" or "rows")");
  }
  HeadTable table;
  const char* const key = file.contains("rows") ? "rows" : "weights";
  table.unit = file.contains("rows") ? HeadTable::Unit::kRows : HeadTable::Unit::kWeights;
  const json& layers = file[key];
  if (!layers.is_array()) {
    refuse(std::string(key) + " is " + layers.type_name() + ", not a list of layers");
  }
  check_size(layers, key);
  table.is_per_head = layers[0].is_array();
  double sum = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const std::string place = std::string(key) + "[" + std::to_string(layer) + "]";
    table.layers.push_back(read_layer(layers[layer], table.is_per_head, place));
    if (table.layers.back().size() != table.layers.front().size()) {
      refuse(place + " has " + std::to_string(table.layers.back().size()) + " heads, and " + key +
             "[0] " + std::to_string(table.layers.front().size()));
    }
    sum += table.mean(static_cast<int>(layer));
  }
  if (sum == 0) {
    refuse(std::string(key) + " are all 0");
  }
  return table;
}

}  // namespace winnow::policy
