#include "support/filters.h"

#include <cmath>
#include <random>

#include "base/files.h"
#include "base/hash.h"
#include "support/random_rows.h"
#include "support/tiny_model.h"

namespace winnow::test {

policy::FilterShape filter_shape(const model::Model& model) {
  return {.n_layers = model.hyper().n_layers,
          .n_heads = model.hyper().n_heads,
          .n_kv_heads = model.hyper().n_kv_heads,
          .head_dim = model.hyper().head_dim};
}

policy::Filters random_filters(const policy::FilterShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  policy::Filters filters{.shape = shape};
  const auto dim = static_cast<size_t>(shape.head_dim);
  filters.is_guarded.resize(static_cast<size_t>(shape.n_layers * shape.n_kv_heads));
  for (size_t head = 0; head < filters.is_guarded.size(); ++head) {
    const std::vector<float> direction = random_floats(random, dim);
    double square = 0;
    for (const float each : direction) {
      square += static_cast<double>(each) * static_cast<double>(each);
    }
    for (const float each : direction) {
      filters.directions.push_back(
          static_cast<float>(static_cast<double>(each) / std::sqrt(square)));
    }
  }
  return filters;
}

std::string write_filters(const policy::Filters& filters) {
  const std::string content = policy::format_filters(filters, {});
  const std::string path =
      temporary_path("filters-" + content_hash(std::as_bytes(std::span(content))) + ".npz");
  write_file_atomically(path, content);
  return path;
}

std::vector<policy::GivenOption> given_options(const policy::Method& method,
                                               const policy::FilterShape& shape) {
  if (!method.needs_file) {
    return {};
  }
  policy::Filters filters = random_filters(shape);
  const auto dim = static_cast<std::ptrdiff_t>(shape.head_dim);
  for (auto to = filters.directions.begin() + dim; to != filters.directions.end(); to += dim) {
    std::copy_n(filters.directions.begin(), dim, to);
  }
  return {{"filters", write_filters(filters)}};
}

std::string own_options(const policy::Method& method, const policy::FilterShape& shape) {
  std::string text;
  for (const policy::GivenOption& option : given_options(method, shape)) {
    text += "," + option.name + "=" + option.value;
  }
  return text;
}

}  // namespace winnow::test
