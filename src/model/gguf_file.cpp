#include "model/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "gguf.h"
#include "model/libllama.h"

namespace winnow::model {
namespace {

constexpr size_t kHeaderBytes = 24;  // magic, version, tensor count, key count
constexpr size_t kMinTensorBytes =
    32;  // name length, one letter, dimensions, one extent, type, offset
constexpr size_t kMinKeyBytes = 14;  // key length, one letter, type, value
constexpr size_t kMinAlignment = 8;
constexpr size_t kMemoryAlignment = 32;  // what ggml's CPU buffers need
constexpr size_t kMaxQuoted = 60;

[[noreturn]] void throw_damaged(const GgufFile& file, const std::string& what) {
  throw Error(ErrorCode::kBadData, "'" + file.path() + "': " + what);
}

[[noreturn]] void throw_unsupported(const GgufFile& file, const std::string& what) {
  throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': " + what);
}

template <typename T>
T read_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

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

struct GgufFile::Content {
  gguf_context_ptr gguf;
  ggml_context_ptr descriptions;   // owns `tensors`
  ggml_backend_buffer_ptr buffer;  // the mapped data section
  std::vector<ggml_tensor*> tensors;
};

GgufFile::GgufFile(const std::string& path) : file_(path), content_(std::make_unique<Content>()) {
  start_libllama();
  check_header();
  read_content();
  check_tensors();
  place_tensors();
}

GgufFile::~GgufFile() = default;

// Checked by hand, because ggml reports all of this as one failure.
void GgufFile::check_header() const {
  const std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < 4 || std::memcmp(bytes.data(), GGUF_MAGIC, 4) != 0) {
    throw_damaged(*this, "not a GGUF file (it does not begin with \"GGUF\")");
  }
  if (bytes.size() < kHeaderBytes) {
    throw_damaged(*this,
                  "the file ends inside its header (" + std::to_string(bytes.size()) + " bytes)");
  }
  const auto version = read_at<uint32_t>(bytes, 4);
  if (version != 0 && (version & 0xffffU) == 0) {
    throw_unsupported(*this, "the file is of the other byte order (big-endian); convert it first");
  }
  if (version < 2 || version > GGUF_VERSION) {
    throw_unsupported(*this, "GGUF version " + std::to_string(version) + " (supported: 2, 3)");
  }
  const auto n_tensors = read_at<uint64_t>(bytes, 8);
  const auto n_keys = read_at<uint64_t>(bytes, 16);
  const size_t rest = bytes.size() - kHeaderBytes;
  if (n_tensors > rest / kMinTensorBytes || n_keys > rest / kMinKeyBytes) {
    throw_damaged(*this, "the header states " + std::to_string(n_tensors) + " tensors and " +
                             std::to_string(n_keys) + " keys, more than the file can hold");
  }
}

void GgufFile::read_content() {
  const std::span<const std::byte> bytes = file_.bytes();
  ggml_context* descriptions = nullptr;
  clear_libllama_error();
  content_->gguf.reset(
      gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = &descriptions}));
  content_->descriptions.reset(descriptions);
  if (content_->gguf == nullptr) {
    throw_damaged(*this, "the header cannot be read: " + libllama_error());
  }
  for (ggml_tensor* tensor = ggml_get_first_tensor(descriptions); tensor != nullptr;
       tensor = ggml_get_next_tensor(descriptions, tensor)) {
    content_->tensors.push_back(tensor);
  }
  if (const auto n_parts = find_integer("split.count", 0, UINT16_MAX); n_parts.value_or(1) > 1) {
    throw_unsupported(*this, "the model is split over " + std::to_string(*n_parts) +
                                 " files; join them first (llama-gguf-split --merge)");
  }
}

// gguf has checked that types and block sizes fit, sizes do not overflow and data follow each other.
void GgufFile::check_tensors() const {
  const gguf_context* gguf = raw();
  if (content_->tensors.empty()) {
    throw_damaged(*this, "the file has no tensors");
  }
  const size_t alignment = gguf_get_alignment(gguf);
  if (alignment < kMinAlignment || !std::has_single_bit(alignment)) {
    throw_damaged(*this, "general.alignment is " + std::to_string(alignment) +
                             " (allowed: powers of two from 8)");
  }
  const size_t file_bytes = file_.bytes().size();
  const size_t data_offset = gguf_get_data_offset(gguf);
  if (data_offset % kMemoryAlignment != 0) {
    throw_unsupported(*this, "the tensor data begin at byte " + std::to_string(data_offset) +
                                 ", which is not a multiple of 32");
  }
  for (int64_t i = 0; i < gguf_get_n_tensors(gguf); ++i) {
    const ggml_tensor* tensor = content_->tensors[static_cast<size_t>(i)];
    const std::string name = "tensor " + quoted(gguf_get_tensor_name(gguf, i));
    if (std::any_of(tensor->ne, tensor->ne + GGML_MAX_DIMS, [](int64_t n) { return n <= 0; })) {
      throw_damaged(*this, name + " is empty");
    }
    const size_t offset = gguf_get_tensor_offset(gguf, i);
    if (offset % alignment != 0) {
      throw_damaged(*this, name + " lies at offset " + std::to_string(offset) +
                               ", not a multiple of the alignment " + std::to_string(alignment));
    }
    if (offset % kMemoryAlignment != 0) {
      throw_unsupported(*this, name + " lies at offset " + std::to_string(offset) +
                                   ", which is not a multiple of 32");
    }
    const size_t n_bytes = ggml_nbytes(tensor);
    if (data_offset > file_bytes || offset > file_bytes - data_offset ||
        n_bytes > file_bytes - data_offset - offset) {
      throw_damaged(*this, name + " ends beyond the end of the file (" +
                               std::to_string(file_bytes) + " bytes): the file is cut off");
    }
  }
}

// The mapping is read-only and ggml never writes to weights, so dropping const is safe.
void GgufFile::place_tensors() {
  const std::span<const std::byte> bytes = file_.bytes();
  const size_t data_offset = gguf_get_data_offset(raw());
  std::byte* const data = const_cast<std::byte*>(bytes.data()) + data_offset;
  content_->buffer.reset(ggml_backend_cpu_buffer_from_ptr(data, bytes.size() - data_offset));
  ggml_backend_buffer_set_usage(content_->buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  for (size_t i = 0; i < content_->tensors.size(); ++i) {
    const size_t offset = gguf_get_tensor_offset(raw(), static_cast<int64_t>(i));
    ggml_backend_tensor_alloc(content_->buffer.get(), content_->tensors[i], data + offset);
  }
}

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
    throw_damaged(*this,
                  "key '" + std::string(key) + "' is of type " + describe(type) + ", not a string");
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
    throw_damaged(*this, "key '" + std::string(key) + "' is of type " +
                             describe(gguf_get_kv_type(raw(), id)) + ", not an integer");
  }
  if (!fits || *value < low || *value > high) {
    throw_damaged(*this, "key '" + std::string(key) + "' is " + std::to_string(*value) +
                             " (allowed: " + std::to_string(low) + " to " + std::to_string(high) +
                             ")");
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
    throw_damaged(*this, "key '" + std::string(key) + "' is of type " + describe(type) +
                             ", not a floating-point number");
  }
  const bool is_allowed =
      value >= static_cast<double>(low) && value <= static_cast<double>(high);  // false for NaN
  if (!is_allowed) {
    throw_damaged(*this, "key '" + std::string(key) + "' is " + std::to_string(value) +
                             " (allowed: " + std::to_string(low) + " to " + std::to_string(high) +
                             ")");
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
    throw_damaged(*this, "key '" + std::string(key) + "' is of type " + describe(type) +
                             ", not true or false");
  }
  return gguf_get_val_bool(raw(), id);
}

std::string GgufFile::string(std::string_view key) const {
  const std::optional<std::string> value = find_string(key);
  if (!value) {
    throw_damaged(*this, "key '" + std::string(key) + "' is missing");
  }
  return *value;
}

int64_t GgufFile::integer(std::string_view key, int64_t low, int64_t high) const {
  const std::optional<int64_t> value = find_integer(key, low, high);
  if (!value) {
    throw_damaged(*this, "key '" + std::string(key) + "' is missing");
  }
  return *value;
}

float GgufFile::number(std::string_view key, float low, float high) const {
  const std::optional<float> value = find_number(key, low, high);
  if (!value) {
    throw_damaged(*this, "key '" + std::string(key) + "' is missing");
  }
  return *value;
}

ggml_tensor* GgufFile::find_tensor(std::string_view name) const {
  const int64_t id = gguf_find_tensor(raw(), std::string(name).c_str());
  return id < 0 ? nullptr : content_->tensors[static_cast<size_t>(id)];
}

std::span<ggml_tensor* const> GgufFile::tensors() const {
  return content_->tensors;
}

const gguf_context* GgufFile::raw() const {
  return content_->gguf.get();
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
