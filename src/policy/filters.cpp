#include "policy/filters.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/name_table.h"
#include "base/npz.h"
#include "base/random.h"

namespace winnow::policy {
namespace {

using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kMeta = "__meta__";
constexpr const char* kKappa = "kv_kappa";  // [n_layers, n_kv_heads, 3]: low, estimate, high
constexpr const char* kCorrelation = "attention_correlation";  // [n_layers, n_kv_heads]
constexpr const char* kQueryMeans = "query_means";             // [n_layers, n_heads, head_dim]
constexpr const char* kQueryCovariances =
    "query_covariances";                        // [n_layers, n_heads, head_dim, head_dim]
constexpr const char* kHashes = "text_hashes";  // int64
constexpr int kMost = 1 << 16;                  // layers, heads, elements of a head
constexpr double kLengthTolerance = 1e-3;

constexpr NameTable<FilterFrame, 3> kFrames{
    "frame",
    {{FilterFrame::kPost, "post"}, {FilterFrame::kPre, "pre"}, {FilterFrame::kLegacy, "legacy"}}};

std::string layer_name(int layer) {
  return "layer_" + std::to_string(layer);
}

// As NumPy stores a text: characters of four bytes.
std::u32string to_characters(const std::string& ascii) {
  return {ascii.begin(), ascii.end()};
}

class FilterReader {
 public:
  explicit FilterReader(const NpzFile& npz) : npz_(npz) {}

  Filters read() {
    read_meta();
    for (int layer = 0; layer < filters_.shape.n_layers; ++layer) {
      read_layer(layer);
    }
    if (npz_.find(layer_name(filters_.shape.n_layers)) != nullptr) {
      fail("has more layers than the " + std::to_string(filters_.shape.n_layers) +
           " that it states");
    }
    read_guarded();
    read_kappa();
    read_correlation();
    read_query_moments();
    read_hashes();
    check_lengths();
    return std::move(filters_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kBadData, npz_.path() + ": " + problem);
  }
  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(ErrorCode::kUnsupported, npz_.path() + ": " + problem);
  }

  std::string meta_text() const {
    const NpyArray* const array = npz_.find(kMeta);
    if (array == nullptr) {
      fail("no filters: it has no " + std::string(kMeta));
    }
    if (!array->type.starts_with("<U") || array->n_elements() != 1) {
      fail(std::string(kMeta) + " is no text");
    }
    std::string text;
    for (size_t at = 0; at < array->bytes.size(); at += 4) {
      uint32_t character = 0;
      std::memcpy(&character, array->bytes.data() + at, sizeof(character));
      if (character >= 0x80) {
        fail(std::string(kMeta) + " is no JSON in ASCII");
      }
      if (character != 0) {  // NumPy pads with them
        text += static_cast<char>(character);
      }
    }
    return text;
  }

  int number(const char* name) const {
    const auto value = meta_.find(name);
    if (value == meta_.end() || !value->is_number_integer() || *value < 1 || *value > kMost) {
      fail(std::string(kMeta) + " states no " + name + " (allowed: 1 to " + std::to_string(kMost) +
           ")");
    }
    return value->get<int>();
  }
  std::string text(const char* name) const {
    const auto value = meta_.find(name);
    return value != meta_.end() && value->is_string() ? value->get<std::string>() : "";
  }

  void read_meta() {
    meta_ = ordered_json::parse(meta_text(), nullptr, /*allow_exceptions=*/false);
    if (!meta_.is_object()) {
      fail(std::string(kMeta) + " is no JSON object");
    }
    const auto version = meta_.find("version");
    if (version == meta_.end() || !version->is_number_integer()) {
      fail(std::string(kMeta) + " states no version");
    }
    if (*version != kVersion) {
      refuse("of version " + version->dump() + " (allowed: " + std::to_string(kVersion) + ")");
    }
    if (!meta_.contains("frame")) {
      refuse(
          "does not say whether its filters are from before or after rotation; winnow calibrate "
          "--import takes such files");
    }
    try {
      filters_.frame = kFrames.parse(text("frame"));
    } catch (const Error& error) {
      refuse(error.what());
    }
    filters_.shape = {.n_layers = number("n_layers"),
                      .n_heads = number("n_heads"),
                      .n_kv_heads = number("n_kv_heads"),
                      .head_dim = number("head_dim")};
    if (filters_.shape.n_heads % filters_.shape.n_kv_heads != 0) {
      fail(std::to_string(filters_.shape.n_kv_heads) + " KV heads do not divide " +
           std::to_string(filters_.shape.n_heads) + " query heads");
    }
    filters_.is_normalized = meta_.value("is_normalized", ordered_json(true)) != false;
    filters_.model = text("architecture");
    filters_.fingerprint = text("fingerprint");
  }

  void read_layer(int layer) {
    const std::string name = layer_name(layer);
    const NpyArray* const array = npz_.find(name);
    if (array == nullptr) {
      fail("states " + std::to_string(filters_.shape.n_layers) + " layers and has no " + name);
    }
    if (array->type != "<f4") {
      refuse(name + " has elements of type '" + array->type + "' (allowed: float32)");
    }
    const std::vector<size_t> shape{static_cast<size_t>(filters_.shape.n_kv_heads),
                                    static_cast<size_t>(filters_.shape.head_dim)};
    if (array->shape != shape) {
      fail(name + " has shape " + array->shape_text() + ", and the file states [" +
           std::to_string(shape[0]) + ", " + std::to_string(shape[1]) + "]");
    }
    const std::vector<float> values = npy_floats(*array, npz_.describe(name));
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      fail(name + " has elements that are not finite");
    }
    filters_.directions.insert(filters_.directions.end(), values.begin(), values.end());
  }

  void read_guarded() {
    const FilterShape& shape = filters_.shape;
    filters_.is_guarded.resize(static_cast<size_t>(shape.n_layers) *
                               static_cast<size_t>(shape.n_kv_heads));
    const auto within = [](const ordered_json& value, int n) {
      return value.is_number_integer() && value >= 0 && value < n;
    };
    for (const ordered_json& head : meta_.value("guarded", ordered_json::array())) {
      if (!head.is_array() || head.size() != 2 || !within(head[0], shape.n_layers) ||
          !within(head[1], shape.n_kv_heads)) {
        fail("'guarded' lists " + head.dump() + " (allowed: [layer, KV head])");
      }
      filters_.is_guarded[head[0].get<size_t>() * static_cast<size_t>(shape.n_kv_heads) +
                          head[1].get<size_t>()] = true;
    }
  }

  void read_kappa() {
    const NpyArray* const array = npz_.find(kKappa);
    if (array == nullptr) {
      return;
    }
    const size_t n = filters_.is_guarded.size();
    if (array->type != "<f4" || array->n_elements() != 3 * n) {
      fail(std::string(kKappa) + " is not float32 [n_layers, n_kv_heads, 3]");
    }
    const std::vector<float> values = npy_floats(*array, npz_.describe(kKappa));
    for (size_t i = 0; i < n; ++i) {
      filters_.kappa_low.push_back(values[3 * i]);
    }
  }

  // The float32 elements of an array that the file may have; empty where it does not.
  std::vector<float> optional_floats(const char* name, const std::vector<size_t>& shape) const {
    const NpyArray* const array = npz_.find(name);
    if (array == nullptr) {
      return {};
    }
    if (array->type != "<f4" || array->shape != shape) {
      fail(std::string(name) + " of shape " + array->shape_text() + " is not float32 of the " +
           "layers, heads and dimensions that the file states");
    }
    return npy_floats(*array, npz_.describe(name));
  }

  void read_correlation() {
    const FilterShape& shape = filters_.shape;
    filters_.correlation = optional_floats(
        kCorrelation, {static_cast<size_t>(shape.n_layers), static_cast<size_t>(shape.n_kv_heads)});
  }

  void read_query_moments() {
    const auto n_layers = static_cast<size_t>(filters_.shape.n_layers);
    const auto n_heads = static_cast<size_t>(filters_.shape.n_heads);
    const auto dim = static_cast<size_t>(filters_.shape.head_dim);
    filters_.query_means = optional_floats(kQueryMeans, {n_layers, n_heads, dim});
    filters_.query_covariances = optional_floats(kQueryCovariances, {n_layers, n_heads, dim, dim});
    if (filters_.query_means.empty() != filters_.query_covariances.empty()) {
      fail(std::string("has ") + (filters_.query_means.empty() ? kQueryCovariances : kQueryMeans) +
           " and no " + (filters_.query_means.empty() ? kQueryMeans : kQueryCovariances));
    }
    const auto is_finite = [](float value) { return std::isfinite(value); };
    if (!std::ranges::all_of(filters_.query_means, is_finite) ||
        !std::ranges::all_of(filters_.query_covariances, is_finite)) {
      fail("mean or covariance of its queries has elements that are not finite");
    }
  }

  void read_hashes() {
    if (const NpyArray* const array = npz_.find(kHashes)) {
      for (const int64_t hash : npy_integers(*array, npz_.describe(kHashes))) {
        filters_.text_hashes.push_back(static_cast<uint64_t>(hash));
      }
      if (!std::ranges::is_sorted(filters_.text_hashes)) {
        fail(std::string(kHashes) + " is not ascending");
      }
    }
  }

  void check_lengths() const {
    for (int layer = 0; layer < filters_.shape.n_layers; ++layer) {
      for (int kv_head = 0; kv_head < filters_.shape.n_kv_heads; ++kv_head) {
        double square = 0;
        for (const float element : filters_.direction(layer, kv_head)) {
          square += static_cast<double>(element) * static_cast<double>(element);
        }
        const double length = std::sqrt(square);
        const bool is_short = length < (filters_.is_normalized ? 1 - kLengthTolerance : 1e-12);
        if (!filters_.guarded(layer, kv_head) && (is_short || length > 1 + kLengthTolerance)) {
          fail("the filter of layer " + std::to_string(layer) + ", KV head " +
               std::to_string(kv_head) + " has length " + std::to_string(length) +
               " (allowed: " + (filters_.is_normalized ? "1" : "above 0, at most 1") + ")");
        }
      }
    }
  }

  const NpzFile& npz_;
  ordered_json meta_;
  Filters filters_;
};

}  // namespace

const char* filter_frame_name(FilterFrame frame) {
  return kFrames.name(frame);
}

kernels::ScoreDirections score_directions(const Filters& filters,
                                          const std::vector<bool>& is_guarded) {
  kernels::ScoreDirections directions{.n_kv_heads = filters.shape.n_kv_heads,
                                      .head_dim = filters.shape.head_dim,
                                      .is_before_rotation = filters.frame == FilterFrame::kPre,
                                      .elements = filters.directions};
  for (const bool has_none : is_guarded) {
    directions.has_direction.push_back(has_none ? 0 : 1);
  }
  return directions;
}

std::string format_filters(const Filters& filters, const FilterNotes& notes) {
  const FilterShape& shape = filters.shape;
  ordered_json meta = {{"version", kVersion},           {"model_id", notes.model_id},
                       {"n_layers", shape.n_layers},    {"n_samples", notes.n_samples},
                       {"dataset", notes.dataset},      {"frame", filter_frame_name(filters.frame)},
                       {"n_heads", shape.n_heads},      {"n_kv_heads", shape.n_kv_heads},
                       {"head_dim", shape.head_dim},    {"is_normalized", filters.is_normalized},
                       {"architecture", filters.model}, {"fingerprint", filters.fingerprint}};
  ordered_json guarded = ordered_json::array();
  for (size_t i = 0; i < filters.is_guarded.size(); ++i) {
    if (filters.is_guarded[i]) {
      const auto n = static_cast<size_t>(shape.n_kv_heads);
      guarded.push_back({i / n, i % n});
    }
  }
  meta["guarded"] = std::move(guarded);
  meta.update(ordered_json::parse(notes.json.empty() ? "{}" : notes.json));
  const std::u32string text = to_characters(meta.dump(-1, ' ', /*ensure_ascii=*/true));

  std::vector<std::pair<std::string, NpyArray>> arrays;
  arrays.push_back({kMeta,
                    {.type = "<U" + std::to_string(text.size()),
                     .shape = {},
                     .bytes = std::as_bytes(std::span(text))}});
  const auto layer_floats =
      static_cast<size_t>(shape.n_kv_heads) * static_cast<size_t>(shape.head_dim);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    arrays.push_back(
        {layer_name(layer),
         {.type = "<f4",
          .shape = {static_cast<size_t>(shape.n_kv_heads), static_cast<size_t>(shape.head_dim)},
          .bytes = std::as_bytes(
              std::span(filters.directions)
                  .subspan(static_cast<size_t>(layer) * layer_floats, layer_floats))}});
  }
  const auto n_layers = static_cast<size_t>(shape.n_layers);
  const auto n_heads = static_cast<size_t>(shape.n_heads);
  const auto dim = static_cast<size_t>(shape.head_dim);
  const auto add = [&](const char* name, std::vector<size_t> dims, std::span<const float> values) {
    if (!values.empty()) {
      arrays.push_back(
          {name, {.type = "<f4", .shape = std::move(dims), .bytes = std::as_bytes(values)}});
    }
  };
  add(kCorrelation, {n_layers, static_cast<size_t>(shape.n_kv_heads)}, filters.correlation);
  add(kQueryMeans, {n_layers, n_heads, dim}, filters.query_means);
  add(kQueryCovariances, {n_layers, n_heads, dim, dim}, filters.query_covariances);
  for (const FilterNotes::Array& array : notes.arrays) {
    arrays.push_back(
        {array.name,
         {.type = "<f4", .shape = array.shape, .bytes = std::as_bytes(std::span(array.values))}});
  }
  if (!filters.text_hashes.empty()) {
    arrays.push_back({kHashes,
                      {.type = "<i8",
                       .shape = {filters.text_hashes.size()},
                       .bytes = std::as_bytes(std::span(filters.text_hashes))}});
  }
  return format_npz(arrays);
}

Filters parse_filters(std::span<const std::byte> file, const std::string& path) {
  return FilterReader(NpzFile(file, path)).read();
}

std::vector<uint64_t> text_stretches(std::span<const int32_t> tokens) {
  constexpr size_t kStretch = 13;
  constexpr uint64_t kOneIn = 32;
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i + kStretch <= tokens.size(); ++i) {
    uint64_t hash = 0;
    for (const int32_t token : tokens.subspan(i, kStretch)) {
      hash = hash_with(hash, token);
    }
    if (hash % kOneIn == 0) {
      hashes.push_back(hash / kOneIn);  // no negative ones, for NumPy's integers
    }
  }
  std::ranges::sort(hashes);
  hashes.erase(std::ranges::unique(hashes).begin(), hashes.end());
  return hashes;
}

double shared_stretches(std::span<const uint64_t> stretches, std::span<const uint64_t> known) {
  const auto n_shared = std::ranges::count_if(
      stretches, [&](uint64_t hash) { return std::ranges::binary_search(known, hash); });
  return stretches.empty() ? 0
                           : static_cast<double>(n_shared) / static_cast<double>(stretches.size());
}

}  // namespace winnow::policy
