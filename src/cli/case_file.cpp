#include "cli/case_file.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/npz.h"

namespace winnow::cli {
namespace {

constexpr std::string_view kNames[] = {"K", "V", "Q", "positions", "scale", "frequencies", "roles"};
constexpr size_t kMaxSize = engine::kMaxCasePositions;  // of every axis
// Sums of softmax weights are exact up to here (kernels/attend.h).
constexpr size_t kMaxQueryHeads = 4096;
constexpr size_t kMaxQueriesOfHead = size_t{1} << 24;  // of a KV head: its query heads × rows
constexpr size_t kMaxHeadDim = 1 << 10;

class CaseReader {
 public:
  explicit CaseReader(const NpzFile& npz) : npz_(npz) {}

  CaseFile read() {
    refuse_unknown();
    read_keys();
    if (problems_.empty()) {  // the others are measured by the keys
      read_values();
      read_queries();
      read_positions();
      read_scale();
      read_frequencies();
      read_roles();
    }
    if (!problems_.empty()) {
      std::string text;
      for (const std::string& problem : problems_) {
        text += (text.empty() ? "" : "; ") + problem;
      }
      throw Error(ErrorCode::kBadData, npz_.path() + ": " + text);
    }
    return std::move(file_);
  }

 private:
  std::vector<float> floats(const char* name) const {
    return npy_floats(*npz_.find(name), npz_.describe(name));
  }

  void refuse_unknown() {
    for (const std::string& name : npz_.names()) {
      if (std::ranges::find(kNames, name) == std::end(kNames)) {
        problems_.push_back("unknown array '" + name +
                            "' (allowed: K, V, Q, positions, scale, frequencies, roles)");
      }
    }
  }

  void read_keys() {
    const NpyArray* const keys = npz_.find("K");
    if (keys == nullptr) {
      problems_.emplace_back("there is no K");
      return;
    }
    const std::vector<size_t>& shape = keys->shape;
    if (shape.size() != 3 && shape.size() != 4) {
      problems_.push_back("K has shape " + keys->shape_text() +
                          " (allowed: [n_kv_heads, n, head_dim] or [n_layers, n_kv_heads, n, "
                          "head_dim])");
      return;
    }
    if (std::ranges::any_of(shape, [](size_t size) { return size == 0 || size > kMaxSize; }) ||
        shape.back() > kMaxHeadDim || shape[0] * shape[shape.size() - 3] > kMaxSize) {
      problems_.push_back("K has shape " + keys->shape_text() + " (allowed: heads and rows 1 to " +
                          std::to_string(kMaxSize) + ", head_dim 1 to " +
                          std::to_string(kMaxHeadDim) + ")");
      return;
    }
    file_.has_layers = shape.size() == 4;
    engine::Case& content = file_.content;
    content.n_layers = file_.has_layers ? static_cast<int>(shape[0]) : 1;
    content.n_kv_heads = static_cast<int>(shape[shape.size() - 3]);
    content.n_rows = static_cast<int>(shape[shape.size() - 2]);
    content.head_dim = static_cast<int>(shape.back());
    content.key_type = row_type(*keys);
    content.keys = floats("K");
  }

  static cache::RowType row_type(const NpyArray& array) {
    return array.type == "<f2" ? cache::RowType::kF16 : cache::RowType::kF32;
  }

  void read_values() {
    const NpyArray* const values = npz_.find("V");
    if (values == nullptr) {
      return;
    }
    if (values->shape != npz_.find("K")->shape) {
      problems_.push_back("V has shape " + values->shape_text() + " and K " +
                          npz_.find("K")->shape_text() + "; both must have the same");
      return;
    }
    file_.content.value_type = row_type(*values);
    file_.content.values = floats("V");
  }

  void read_queries() {
    const NpyArray* const queries = npz_.find("Q");
    if (queries == nullptr) {
      return;
    }
    engine::Case& content = file_.content;
    std::vector<size_t> shape = queries->shape;
    const std::string begin = "Q has shape " + queries->shape_text();
    if (shape.size() != npz_.find("K")->shape.size() ||
        (file_.has_layers && shape[0] != static_cast<size_t>(content.n_layers)) ||
        shape.back() != static_cast<size_t>(content.head_dim)) {
      problems_.push_back(begin + " and K " + npz_.find("K")->shape_text() +
                          "; layers and head_dim must be the same");
      return;
    }
    const size_t n_heads = shape[shape.size() - 3];
    const size_t n_queries = shape[shape.size() - 2];
    const auto n_kv_heads = static_cast<size_t>(content.n_kv_heads);
    if (n_heads > kMaxQueryHeads || n_heads / n_kv_heads * n_queries > kMaxQueriesOfHead) {
      problems_.push_back(begin + ": at most " + std::to_string(kMaxQueryHeads) +
                          " query heads and " + std::to_string(kMaxQueriesOfHead) +
                          " queries of a KV head are allowed");
      return;
    }
    if (n_heads == 0 || n_heads % n_kv_heads != 0) {
      problems_.push_back(begin + ": " + std::to_string(n_heads) +
                          " query heads are no multiple of K's " +
                          std::to_string(content.n_kv_heads) + " KV heads");
      return;
    }
    if (n_queries == 0 || n_queries > static_cast<size_t>(content.n_rows)) {
      problems_.push_back(begin + ": queries of " + std::to_string(n_queries) +
                          " rows (allowed: the last 1 to " + std::to_string(content.n_rows) + ")");
      return;
    }
    content.n_heads = static_cast<int>(n_heads);
    content.n_queries = static_cast<int>(n_queries);
    content.queries = floats("Q");
  }

  void read_positions() {
    const auto n = static_cast<size_t>(file_.content.n_rows);
    std::vector<int32_t>& positions = file_.content.positions;
    positions.resize(n);
    const NpyArray* const given = npz_.find("positions");
    if (given == nullptr) {
      std::iota(positions.begin(), positions.end(), 0);
      return;
    }
    if (given->shape != std::vector<size_t>{n}) {
      problems_.push_back("positions has shape " + given->shape_text() + ", but K has " +
                          std::to_string(n) + " rows");
      return;
    }
    const std::vector<int64_t> wide = npy_integers(*given, npz_.describe("positions"));
    for (size_t i = 0; i < n; ++i) {
      if (wide[i] < 0 || wide[i] >= engine::kMaxCasePositions ||
          (i > 0 && wide[i] <= wide[i - 1])) {
        problems_.push_back("positions[" + std::to_string(i) + "] is " + std::to_string(wide[i]) +
                            " (allowed: 0 to " + std::to_string(engine::kMaxCasePositions - 1) +
                            ", ascending)");
        return;
      }
      positions[i] = static_cast<int32_t>(wide[i]);
    }
  }

  void read_scale() {
    float& scale = file_.content.scale;
    scale = 1.0F / std::sqrt(static_cast<float>(file_.content.head_dim));
    const NpyArray* const given = npz_.find("scale");
    if (given == nullptr) {
      return;
    }
    if (given->n_elements() != 1) {
      problems_.push_back("scale has shape " + given->shape_text() + " (allowed: one number)");
      return;
    }
    scale = floats("scale")[0];
    if (!std::isfinite(scale) || scale <= 0) {
      problems_.push_back("scale is " + std::to_string(scale) + " (allowed: above 0)");
    }
  }

  void read_frequencies() {
    const NpyArray* const given = npz_.find("frequencies");
    if (given == nullptr) {
      return;
    }
    const auto n_most = static_cast<size_t>(file_.content.head_dim / 2);
    if (given->shape.size() != 1 || given->n_elements() == 0 || given->n_elements() > n_most) {
      problems_.push_back("frequencies has shape " + given->shape_text() + " (allowed: [1] to [" +
                          std::to_string(n_most) + "], of pairs of elements)");
      return;
    }
    file_.content.frequencies = floats("frequencies");
    for (const float frequency : file_.content.frequencies) {
      if (!std::isfinite(frequency) || frequency <= 0) {
        problems_.push_back("frequencies has " + std::to_string(frequency) + " (allowed: above 0)");
        return;
      }
    }
  }

  void read_roles() {
    const NpyArray* const given = npz_.find("roles");
    if (given == nullptr) {
      return;
    }
    if (given->shape != std::vector<size_t>{static_cast<size_t>(file_.content.n_rows)}) {
      problems_.push_back("roles has shape " + given->shape_text() + ", but K has " +
                          std::to_string(file_.content.n_rows) + " rows");
      return;
    }
    for (const int64_t number : npy_integers(*given, npz_.describe("roles"))) {
      if (number < 0 || number >= roles::kRoles) {
        problems_.push_back("roles has " + std::to_string(number) +
                            " (allowed: 0 WS, 1 PROSE, 2 DELIM, 3 VALUE, 4 HEADER, 5 KEY)");
        return;
      }
      file_.content.roles.push_back(static_cast<roles::Role>(number));
    }
  }

  const NpzFile& npz_;
  CaseFile file_;
  std::vector<std::string> problems_;
};

// The same member of all results, one after the other.
template <typename T>
std::vector<T> gathered(std::span<const engine::CaseResult> results,
                        std::vector<T> engine::CaseResult::*member) {
  std::vector<T> all;
  for (const engine::CaseResult& result : results) {
    all.insert(all.end(), (result.*member).begin(), (result.*member).end());
  }
  return all;
}

}  // namespace

CaseFile parse_case(std::span<const std::byte> bytes, const std::string& path) {
  return CaseReader(NpzFile(bytes, path)).read();
}

std::string format_results(const CaseFile& file, std::span<const std::string> specs,
                           std::span<const engine::CaseResult> results) {
  std::vector<size_t> shape;
  if (results.size() > 1) {
    shape.push_back(results.size());
  }
  const std::vector<size_t> spec_shape = shape;
  if (file.has_layers) {
    shape.push_back(static_cast<size_t>(file.content.n_layers));
  }
  shape.push_back(static_cast<size_t>(file.content.n_kv_heads));
  const std::vector<size_t> head_shape = shape;
  shape.push_back(static_cast<size_t>(file.content.n_rows));

  const size_t n_characters = std::ranges::max_element(specs, {}, &std::string::size)->size();
  std::vector<uint32_t> characters(specs.size() * n_characters);
  for (size_t i = 0; i < specs.size(); ++i) {
    std::ranges::copy(specs[i], characters.begin() + static_cast<std::ptrdiff_t>(i * n_characters));
  }
  const auto scores = gathered(results, &engine::CaseResult::scores);
  const auto final_scores = gathered(results, &engine::CaseResult::final_scores);
  const auto kept = gathered(results, &engine::CaseResult::kept);
  const auto n_kept = gathered(results, &engine::CaseResult::n_kept);
  const auto array = [](const std::string& type, const std::vector<size_t>& sizes,
                        const auto& elements) {
    return NpyArray{.type = type, .shape = sizes, .bytes = std::as_bytes(std::span(elements))};
  };
  std::vector<std::pair<std::string, NpyArray>> arrays{
      {"scores", array("<f4", shape, scores)},
      {"final_scores", array("<f4", shape, final_scores)},
      {"kept", array("|b1", shape, kept)},
      {"n_kept", array("<i8", head_shape, n_kept)},
      {"policy", array("<U" + std::to_string(n_characters), spec_shape, characters)}};
  // Of policies that merge none, the values are those of the case.
  std::vector<float> values;
  if (std::ranges::any_of(results, [](const auto& result) { return !result.values.empty(); })) {
    shape.push_back(static_cast<size_t>(file.content.head_dim));
    for (const engine::CaseResult& result : results) {
      const std::vector<float>& of_policy =
          result.values.empty() ? file.content.values : result.values;
      values.insert(values.end(), of_policy.begin(), of_policy.end());
    }
    arrays.emplace_back("values", array("<f4", shape, values));
  }
  return format_npz(arrays);
}

}  // namespace winnow::cli
