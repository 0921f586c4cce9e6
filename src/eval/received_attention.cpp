#include "eval/received_attention.h"

#include "base/error.h"

namespace winnow::eval {

std::vector<double> received_attention(const policy::LayerView& layer, int kv_head) {
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  WINNOW_CHECK(rows.mass != nullptr);
  std::vector<double> attention(static_cast<size_t>(rows.n));
  for (size_t slot = 0; slot < attention.size(); ++slot) {
    const double n_queries = static_cast<double>(layer.n_positions - rows.positions[slot]) *
                             layer.attention.gqa_group_size();
    attention[slot] = static_cast<double>(rows.mass[slot]) / kernels::kMassScale / n_queries;
  }
  return attention;
}

}  // namespace winnow::eval
