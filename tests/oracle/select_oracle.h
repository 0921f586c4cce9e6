// Selection as a plain stable sort: what every faster way of selecting must equal.
#pragma once

#include <vector>

namespace winnow::oracle {

// The slots kept of scores [n]: the first n_first, the last n_last, and the best of the others, ascending.
std::vector<int> select(const std::vector<float>& scores, int n_keep, int n_first, int n_last);

}  // namespace winnow::oracle
