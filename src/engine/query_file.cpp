#include "engine/query_file.h"

#include <algorithm>
#include <span>
#include <vector>

namespace winnow::engine {
namespace {

constexpr const char* kSection = "queries";

template <class Visit>
void for_each_layer(const kernels::QueryWindow& window, const Visit& visit) {
  for (size_t layer = 0; layer < window.shape().is_watched.size(); ++layer) {
    if (window.shape().is_watched[layer]) {
      visit(static_cast<int>(layer));
    }
  }
}

size_t token_floats(const kernels::QueryWindow& window) {
  return static_cast<size_t>(window.shape().n_heads) * static_cast<size_t>(window.shape().head_dim);
}

}  // namespace

void put_queries(const kernels::QueryWindow& window, SectionWriter& file) {
  if (window.shape().n_queries == 0) {
    return;
  }
  file.begin(kSection);
  for_each_layer(window, [&](int layer) {
    const int begin = window.begin_pos(layer);
    const int end = window.end_pos(layer);
    file.put(int32_t{end - begin});
    for (int pos = begin; pos < end; ++pos) {
      file.refer(std::as_bytes(std::span(window.query(layer, 0, pos), token_floats(window))));
    }
  });
}

void read_queries(SectionFile& file, int n_positions, kernels::QueryWindow& window) {
  if (window.shape().n_queries == 0) {
    return;
  }
  SectionReader reader = file.read(kSection);
  for_each_layer(window, [&](int layer) {
    const int n =
        reader.get_int("the number of queries", 0, std::min(n_positions, window.shape().n_queries));
    const auto q = reader.get_array<float>(static_cast<size_t>(n) * token_floats(window));
    window.add(layer, q.data(), n, n_positions - n);
  });
  reader.expect_end();
}

}  // namespace winnow::engine
