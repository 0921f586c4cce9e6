#include "engine/query_file.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace winnow::engine {
namespace {

constexpr const char* kQueries = "queries";
constexpr const char* kMoments = "moments";
constexpr const char* kSimilarity = "similarity";
constexpr const char* kDirections = "key directions";

template <class Visit>
void for_each_layer(const std::vector<bool>& is_watched, const Visit& visit) {
  for (size_t layer = 0; layer < is_watched.size(); ++layer) {
    if (is_watched[layer]) {
      visit(static_cast<int>(layer));
    }
  }
}

size_t token_floats(const kernels::QueryWindow& window) {
  return static_cast<size_t>(window.shape().n_heads) * static_cast<size_t>(window.shape().head_dim);
}

}  // namespace

void put_queries(const kernels::QueryWindow& window, bool has_rotations, SectionWriter& file) {
  if (window.shape().n_queries == 0) {
    return;
  }
  file.begin(kQueries);
  for_each_layer(window.shape().is_watched, [&](int layer) {
    const int begin = window.begin_pos(layer);
    const int end = window.end_pos(layer);
    file.put(int32_t{end - begin});
    for (int pos = begin; has_rotations && pos < end; ++pos) {
      file.put(int32_t{window.rotation(layer, pos)});
    }
    for (int pos = begin; pos < end; ++pos) {
      file.refer(std::as_bytes(std::span(window.query(layer, 0, pos), token_floats(window))));
    }
  });
}

void read_queries(SectionFile& file, int n_positions, bool has_rotations,
                  kernels::QueryWindow& window) {
  if (window.shape().n_queries == 0) {
    return;
  }
  SectionReader reader = file.read(kQueries);
  for_each_layer(window.shape().is_watched, [&](int layer) {
    const int n =
        reader.get_int("the number of queries", 0, std::min(n_positions, window.shape().n_queries));
    std::vector<int32_t> rotations(static_cast<size_t>(n));
    std::iota(rotations.begin(), rotations.end(), n_positions - n);
    for (int i = 0; has_rotations && i < n; ++i) {
      rotations[static_cast<size_t>(i)] =
          reader.get_int("what a query is rotated to", 0, n_positions - n + i);
    }
    const auto q = reader.get_array<float>(static_cast<size_t>(n) * token_floats(window));
    for (size_t i = 0; i < rotations.size(); ++i) {
      window.add(layer, q.data() + i * token_floats(window), 1,
                 n_positions - n + static_cast<int>(i), rotations[i]);
    }
  });
  reader.expect_end();
}

void put_similarity(const kernels::ResidualSimilarity& similarity, SectionWriter& file) {
  if (similarity.is_empty()) {
    return;
  }
  file.begin(kSimilarity);
  for (int layer = 0; layer < similarity.n_layers(); ++layer) {
    file.put(similarity.sums(layer).n);
    file.put(similarity.sums(layer).cosines);
  }
}

void read_similarity(SectionFile& file, int n_positions, kernels::ResidualSimilarity& similarity) {
  if (similarity.is_empty()) {
    return;
  }
  SectionReader reader = file.read(kSimilarity);
  for (int layer = 0; layer < similarity.n_layers(); ++layer) {
    const auto n = reader.get<int64_t>();
    const auto cosines = reader.get<int64_t>();
    const double most = static_cast<double>(n) * kernels::ResidualSimilarity::kScale;
    if (n < 0 || n > n_positions || std::abs(static_cast<double>(cosines)) > most) {
      reader.fail("cosines of " + std::to_string(n) + " tokens of " + std::to_string(n_positions) +
                  " positions come to " + std::to_string(cosines));
    }
    similarity.set_sums(layer, {n, cosines});
  }
  reader.expect_end();
}

void put_moments(const kernels::QueryMoments& moments, SectionWriter& file) {
  if (moments.shape().n_heads == 0) {
    return;
  }
  file.begin(kMoments);
  for_each_layer(moments.shape().is_watched, [&](int layer) {
    for (const int64_t n : moments.counts(layer)) {
      file.put(n);
    }
    file.refer(std::as_bytes(moments.sums(layer)));
  });
}

void read_moments(SectionFile& file, int n_positions, kernels::QueryMoments& moments) {
  if (moments.shape().n_heads == 0) {
    return;
  }
  SectionReader reader = file.read(kMoments);
  for_each_layer(moments.shape().is_watched, [&](int layer) {
    for (int64_t& n : moments.counts(layer)) {
      n = reader.get<int64_t>();
      if (n < 0 || n > std::max(0, n_positions - kernels::kUncountedQueries)) {
        reader.fail(std::to_string(n) + " queries were counted of " + std::to_string(n_positions) +
                    " positions");
      }
    }
    const auto sums = reader.get_array<double>(moments.sums(layer).size());
    std::copy(sums.begin(), sums.end(), moments.sums(layer).begin());
  });
  reader.expect_end();
}

void put_directions(const policy::KeyDirections& directions, SectionWriter& file) {
  if (directions.is_empty()) {
    return;
  }
  file.begin(kDirections);
  for (int layer = 0; layer < directions.shape().n_layers; ++layer) {
    file.put_flag(directions.is_frozen(layer));
    for (int kv_head = 0; directions.is_frozen(layer) && kv_head < directions.shape().n_kv_heads;
         ++kv_head) {
      file.put_array(directions.direction(layer, kv_head));
    }
  }
}

void read_directions(SectionFile& file, policy::KeyDirections& directions) {
  if (directions.is_empty()) {
    return;
  }
  const policy::KeyDirections::Shape& shape = directions.shape();
  SectionReader reader = file.read(kDirections);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    if (!reader.get_flag("a layer's directions")) {
      continue;
    }
    const auto elements = reader.get_array<float>(static_cast<size_t>(shape.n_kv_heads) *
                                                  static_cast<size_t>(shape.head_dim));
    if (!std::ranges::all_of(elements, [](float each) { return std::isfinite(each); })) {
      reader.fail("a direction has elements that are not finite");
    }
    directions.restore(layer, elements);
  }
  reader.expect_end();
}

}  // namespace winnow::engine
