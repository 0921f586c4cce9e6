// A user's table of how much each layer, or each head, is to keep.
#pragma once

#include <string_view>
#include <vector>

namespace winnow::policy {

struct HeadTable {
  enum class Unit {
    kWeights,  // shares of the budget, in proportion
    kRows,  // rows per KV head; where the budget is not their mean, each has as many more or fewer
  };
  Unit unit = Unit::kWeights;
  bool is_per_head = false;
  std::vector<std::vector<double>> layers = {};  // [n_layers, n_kv_heads], or [n_layers, 1]

  int n_layers() const { return static_cast<int>(layers.size()); }
  int n_kv_heads() const { return static_cast<int>(layers.front().size()); }
  // Per KV head of a layer.
  double mean(int layer) const;
};

// JSON: {"weights": TABLE} or {"rows": TABLE}, and whatever text under "comment". TABLE is [number of each layer] or
// [[number of each KV head] of each layer], numbers from 0 to 1e9. Throws bad_data, which says what is wrong and where.
HeadTable parse_head_table(std::string_view json);

}  // namespace winnow::policy
