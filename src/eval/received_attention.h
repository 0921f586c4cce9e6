// What the keys of a head received of the attention of all queries that could see them.
#pragma once

#include <vector>

#include "policy/scorer.h"

namespace winnow::eval {

// The mean softmax weight of each slot over the queries from its own position on and over the query heads of the KV head, from
// the column mass in the cache: [n].
std::vector<double> received_attention(const policy::LayerView& layer, int kv_head);

}  // namespace winnow::eval
