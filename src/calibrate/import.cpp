#include "calibrate/import.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/npz.h"
#include "engine/admission.h"

namespace winnow::calibrate {
namespace {

using nlohmann::ordered_json;
using policy::FilterFrame;

// Whatever the file holds, [n_layers, n_kv_heads, head_dim].
struct Foreign {
  std::vector<size_t> shape;
  std::vector<float> values;
  bool is_negated = false;
  FilterFrame frame = FilterFrame::kPost;
};

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw Error(ErrorCode::kBadData, path + ": " + problem);
}

std::vector<float> from_bf16(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + 2 * i, sizeof(half));
    values[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
  return values;
}

// The only tensor of a safetensors file: length of the header u64, a JSON object of tensors, and their elements.
Foreign read_safetensors(std::span<const std::byte> file, const std::string& path) {
  uint64_t n_header = 0;
  if (file.size() < sizeof(n_header)) {
    fail(path, "cut off");
  }
  std::memcpy(&n_header, file.data(), sizeof(n_header));
  file = file.subspan(sizeof(n_header));
  if (n_header > file.size()) {
    fail(path, "neither a whole safetensors file nor an .npz file");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()), n_header);
  ordered_json header = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) {
    fail(path, "neither a safetensors file nor an .npz file");
  }
  header.erase("__metadata__");
  if (header.size() != 1) {
    fail(path, "holds " + std::to_string(header.size()) + " tensors (allowed: one, the filters)");
  }
  const ordered_json& tensor = header.begin().value();
  const auto is_size = [](const ordered_json& value) { return value.is_number_unsigned(); };
  const auto field = [&](const char* name) {
    const auto value = tensor.is_object() ? tensor.find(name) : tensor.end();
    return tensor.is_object() && value != tensor.end() ? *value : ordered_json();
  };
  const ordered_json shape = field("shape");
  const ordered_json offsets = field("data_offsets");
  const ordered_json type = field("dtype");
  if (!shape.is_array() || !std::ranges::all_of(shape, is_size) || !offsets.is_array() ||
      offsets.size() != 2 || !std::ranges::all_of(offsets, is_size) || !type.is_string()) {
    fail(path, "its header does not describe a tensor");
  }
  const std::span<const std::byte> data = file.subspan(n_header);
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    fail(path, "the tensor lies beyond the end of the file");
  }
  Foreign foreign{.shape = shape.get<std::vector<size_t>>(), .values = {}, .is_negated = true};
  const std::span<const std::byte> bytes = data.subspan(begin, end - begin);
  const auto as_numpy = [&](const char* numpy) {
    return npy_floats({.type = numpy, .shape = {}, .bytes = bytes}, path);
  };
  if (type == "F32") {
    foreign.values = as_numpy("<f4");
  } else if (type == "F16") {
    foreign.values = as_numpy("<f2");
  } else if (type == "BF16") {
    foreign.values = from_bf16(bytes);
  } else {
    throw Error(ErrorCode::kUnsupported, path + ": elements of type '" + type.get<std::string>() +
                                             "' (allowed: F32, F16, BF16)");
  }
  return foreign;
}

Foreign read_npz(std::span<const std::byte> file, const std::string& path,
                 FilterFrame frame_of_layers) {
  const NpzFile npz(file, path);
  Foreign foreign;
  if (npz.find("layer_0") == nullptr) {
    const std::vector<std::string> names = npz.names();
    if (names.size() != 1) {
      fail(path, "holds " + std::to_string(names.size()) +
                     " arrays and no layer_0 (allowed: one array of all filters, or layer_0, …)");
    }
    const NpyArray& array = *npz.find(names[0]);
    return {.shape = array.shape,
            .values = npy_floats(array, npz.describe(names[0])),
            .is_negated = true};
  }
  foreign.frame = frame_of_layers;
  size_t n_layers = 0;
  for (const NpyArray* array = npz.find("layer_0"); array != nullptr;
       array = npz.find("layer_" + std::to_string(n_layers))) {
    const std::string where = npz.describe("layer_" + std::to_string(n_layers));
    if (array->shape.size() != 2 || array->shape != npz.find("layer_0")->shape) {
      fail(where, "it has shape " + array->shape_text() +
                      " (allowed: [n_kv_heads, head_dim], the same in all layers)");
    }
    const std::vector<float> values = npy_floats(*array, where);
    foreign.values.insert(foreign.values.end(), values.begin(), values.end());
    ++n_layers;
  }
  foreign.shape = npz.find("layer_0")->shape;
  foreign.shape.insert(foreign.shape.begin(), n_layers);
  return foreign;
}

double length(std::span<const float> x) {
  double square = 0;
  for (const float each : x) {
    square += static_cast<double>(each) * static_cast<double>(each);
  }
  return std::sqrt(square);
}

}  // namespace

void to_neighbours(std::span<float> vector, int n_rot) {
  const auto half = static_cast<size_t>(n_rot / 2);
  const std::vector<float> before(vector.begin(), vector.end());
  for (size_t i = 0; i < half; ++i) {
    vector[2 * i] = before[i];
    vector[2 * i + 1] = before[i + half];
  }
}

policy::Filters import_filters(std::span<const std::byte> file, const std::string& path,
                               const model::Model& model, FilterFrame frame_of_layers) {
  const bool is_zip = file.size() >= 2 && file[0] == std::byte{'P'} && file[1] == std::byte{'K'};
  Foreign foreign = is_zip ? read_npz(file, path, frame_of_layers) : read_safetensors(file, path);
  if (foreign.is_negated && frame_of_layers == FilterFrame::kLegacy) {
    throw Error(
        ErrorCode::kInvalidArgument,
        path +
            ": one array of filters, which are of queries after rotation: legacy is for files of "
            "layer_0, layer_1, …");
  }
  const model::Hyperparameters& hyper = model.hyper();
  const std::vector<size_t> shape{static_cast<size_t>(hyper.n_layers),
                                  static_cast<size_t>(hyper.n_kv_heads),
                                  static_cast<size_t>(hyper.head_dim)};
  if (foreign.shape != shape) {
    const NpyArray described{.type = {}, .shape = foreign.shape, .bytes = {}};
    throw Error(ErrorCode::kInvalidArgument,
                path + ": filters of shape " + described.shape_text() + ", and the model has " +
                    engine::heads_text(hyper.n_layers, hyper.n_kv_heads, hyper.head_dim));
  }
  if (foreign.values.size() != shape[0] * shape[1] * shape[2]) {
    fail(path, "states another number of elements than there are");
  }
  if (!std::ranges::all_of(foreign.values, [](float each) { return std::isfinite(each); })) {
    fail(path, "has elements that are not finite");
  }
  policy::Filters filters{.shape = {.n_layers = hyper.n_layers,
                                    .n_heads = hyper.n_heads,
                                    .n_kv_heads = hyper.n_kv_heads,
                                    .head_dim = hyper.head_dim},
                          .frame = foreign.frame,
                          .is_normalized = false,
                          .directions = std::move(foreign.values)};
  for (size_t head = 0; head < shape[0] * shape[1]; ++head) {
    const std::span<float> direction =
        std::span(filters.directions).subspan(head * shape[2], shape[2]);
    const double norm = length(direction);
    constexpr double kRounding = 0.01;  // bfloat16 has so little
    if (norm > 1 + kRounding) {
      fail(path, "the filter of layer " + std::to_string(head / shape[1]) + ", KV head " +
                     std::to_string(head % shape[1]) + " has length " + std::to_string(norm) +
                     " (allowed: up to 1)");
    }
    const double scale = (foreign.is_negated ? -1 : 1) / std::max(norm, 1.0);
    for (float& each : direction) {
      each = static_cast<float>(scale * static_cast<double>(each));
    }
    if (hyper.rope.mode == 0) {
      to_neighbours(direction, hyper.rope.n_rot);
    }
    filters.is_guarded.push_back(norm < 1e-6);
  }
  filters.model = model.family().architecture;
  filters.fingerprint = model.fingerprint();
  return filters;
}

}  // namespace winnow::calibrate
