// The values of a GGUF file's keys: gguf's own getters abort on another type than the one asked for.

#include "gguf.h"
#include "model/gguf_file.h"

namespace winnow::model {
namespace {

constexpr size_t kMaxQuoted = 60;

std::string describe(gguf_type type) {
  return std::string("'") + gguf_type_name(type) + "'";
}

// The scalar as int64, or nullopt when its type is no integer. `fits` is false for u64 beyond int64.
std::optional<int64_t> integer_value(const gguf_context* gguf, int64_t key, bool& fits) {
  fits = true;
  switch (gguf_get_kv_type(gguf, key)) {
    case GGUF_TYPE_UINT8:
      return gguf_get_val_u8(gguf, key);
    case GGUF_TYPE_INT8:
      return gguf_get_val_i8(gguf, key);
    case GGUF_TYPE_UINT16:
      return gguf_get_val_u16(gguf, key);
    case GGUF_TYPE_INT16:
      return gguf_get_val_i16(gguf, key);
    case GGUF_TYPE_UINT32:
      return gguf_get_val_u32(gguf, key);
    case GGUF_TYPE_INT32:
      return gguf_get_val_i32(gguf, key);
    case GGUF_TYPE_INT64:
      return gguf_get_val_i64(gguf, key);
    case GGUF_TYPE_UINT64: {
      const uint64_t value = gguf_get_val_u64(gguf, key);
      fits = value <= static_cast<uint64_t>(INT64_MAX);
      return fits ? static_cast<int64_t>(value) : INT64_MAX;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

int64_t GgufFile::find_key(std::string_view key) const {
  return gguf_find_key(raw(), std::string(key).c_str());
}

bool GgufFile::has(std::string_view key) const {
  return find_key(key) >= 0;
}

bool GgufFile::is_array(std::string_view key) const {
  const int64_t id = find_key(key);
  return id >= 0 && gguf_get_kv_type(raw(), id) == GGUF_TYPE_ARRAY;
}

std::optional<std::string> GgufFile::find_string(std::string_view key) const {
  const int64_t id = find_key(key);
  if (id < 0) {
    return std::nullopt;
  }
  const gguf_type type = gguf_get_kv_type(raw(), id);
  if (type != GGUF_TYPE_STRING) {
    throw_damaged("key '" + std::string(key) + "' is of type " + describe(type) + ", not a string");
  }
  return gguf_get_val_str(raw(), id);
}

std::optional<int64_t> GgufFile::find_integer(std::string_view key, int64_t low,
                                              int64_t high) const {
  const int64_t id = find_key(key);
  if (id < 0) {
    return std::nullopt;
  }
  bool fits = true;
  const std::optional<int64_t> value = integer_value(raw(), id, fits);
  if (!value) {
    throw_damaged("key '" + std::string(key) + "' is of type " +
                  describe(gguf_get_kv_type(raw(), id)) + ", not an integer");
  }
  if (!fits || *value < low || *value > high) {
    throw_damaged("key '" + std::string(key) + "' is " + std::to_string(*value) +
                  " (allowed: " + std::to_string(low) + " to " + std::to_string(high) + ")");
  }
  return value;
}

std::optional<float> GgufFile::find_number(std::string_view key, float low, float high) const {
  const int64_t id = find_key(key);
  if (id < 0) {
    return std::nullopt;
  }
  double value = 0;
  const gguf_type type = gguf_get_kv_type(raw(), id);
  if (type == GGUF_TYPE_FLOAT32) {
    value = static_cast<double>(gguf_get_val_f32(raw(), id));
  } else if (type == GGUF_TYPE_FLOAT64) {
    value = gguf_get_val_f64(raw(), id);
  } else {
    throw_damaged("key '" + std::string(key) + "' is of type " + describe(type) +
                  ", not a floating-point number");
  }
  const bool is_allowed =
      value >= static_cast<double>(low) && value <= static_cast<double>(high);  // false for NaN
  if (!is_allowed) {
    throw_damaged("key '" + std::string(key) + "' is " + std::to_string(value) +
                  " (allowed: " + std::to_string(low) + " to " + std::to_string(high) + ")");
  }
  return static_cast<float>(value);
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const int64_t id = find_key(key);
  if (id < 0) {
    return std::nullopt;
  }
  const gguf_type type = gguf_get_kv_type(raw(), id);
  if (type != GGUF_TYPE_BOOL) {
    throw_damaged("key '" + std::string(key) + "' is of type " + describe(type) +
                  ", not true or false");
  }
  return gguf_get_val_bool(raw(), id);
}

std::string GgufFile::string(std::string_view key) const {
  const std::optional<std::string> value = find_string(key);
  if (!value) {
    throw_damaged("key '" + std::string(key) + "' is missing");
  }
  return *value;
}

int64_t GgufFile::integer(std::string_view key, int64_t low, int64_t high) const {
  const std::optional<int64_t> value = find_integer(key, low, high);
  if (!value) {
    throw_damaged("key '" + std::string(key) + "' is missing");
  }
  return *value;
}

float GgufFile::number(std::string_view key, float low, float high) const {
  const std::optional<float> value = find_number(key, low, high);
  if (!value) {
    throw_damaged("key '" + std::string(key) + "' is missing");
  }
  return *value;
}

std::string quoted(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, kMaxQuoted)) {
    const bool is_printable = static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
    shown += is_printable ? c : '?';
  }
  return shown + (text.size() > kMaxQuoted ? "…'" : "'");
}

}  // namespace winnow::model
