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

template <typename T>
T read_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
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
    throw_damaged("not a GGUF file (it does not begin with \"GGUF\")");
  }
  if (bytes.size() < kHeaderBytes) {
    throw_damaged("the file ends inside its header (" + std::to_string(bytes.size()) + " bytes)");
  }
  const auto version = read_at<uint32_t>(bytes, 4);
  if (version != 0 && (version & 0xffffU) == 0) {
    throw_unsupported("the file is of the other byte order (big-endian); convert it first");
  }
  if (version < 2 || version > GGUF_VERSION) {
    throw_unsupported("GGUF version " + std::to_string(version) + " (supported: 2, 3)");
  }
  const auto n_tensors = read_at<uint64_t>(bytes, 8);
  const auto n_keys = read_at<uint64_t>(bytes, 16);
  const size_t rest = bytes.size() - kHeaderBytes;
  if (n_tensors > rest / kMinTensorBytes || n_keys > rest / kMinKeyBytes) {
    throw_damaged("the header states " + std::to_string(n_tensors) + " tensors and " +
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
    check_libllama_memory("read the header of '" + path() + "'");
    throw_damaged("the header cannot be read: " + libllama_error());
  }
  for (ggml_tensor* tensor = ggml_get_first_tensor(descriptions); tensor != nullptr;
       tensor = ggml_get_next_tensor(descriptions, tensor)) {
    content_->tensors.push_back(tensor);
  }
  if (const auto n_parts = find_integer("split.count", 0, UINT16_MAX); n_parts.value_or(1) > 1) {
    throw_unsupported("the model is split over " + std::to_string(*n_parts) +
                      " files; join them first (llama-gguf-split --merge)");
  }
}

// gguf has checked that types and block sizes fit, sizes do not overflow and data follow each other.
void GgufFile::check_tensors() const {
  const gguf_context* gguf = raw();
  if (content_->tensors.empty()) {
    throw_damaged("the file has no tensors");
  }
  const size_t alignment = gguf_get_alignment(gguf);
  if (alignment < kMinAlignment || !std::has_single_bit(alignment)) {
    throw_damaged("general.alignment is " + std::to_string(alignment) +
                  " (allowed: powers of two from 8)");
  }
  const size_t file_bytes = file_.bytes().size();
  const size_t data_offset = gguf_get_data_offset(gguf);
  if (data_offset % kMemoryAlignment != 0) {
    throw_unsupported("the tensor data begin at byte " + std::to_string(data_offset) +
                      ", which is not a multiple of 32");
  }
  for (int64_t i = 0; i < gguf_get_n_tensors(gguf); ++i) {
    const ggml_tensor* tensor = content_->tensors[static_cast<size_t>(i)];
    const std::string name = "tensor " + quoted(gguf_get_tensor_name(gguf, i));
    if (std::any_of(tensor->ne, tensor->ne + GGML_MAX_DIMS, [](int64_t n) { return n <= 0; })) {
      throw_damaged(name + " is empty");
    }
    const size_t offset = gguf_get_tensor_offset(gguf, i);
    if (offset % alignment != 0) {
      throw_damaged(name + " lies at offset " + std::to_string(offset) +
                    ", not a multiple of the alignment " + std::to_string(alignment));
    }
    if (offset % kMemoryAlignment != 0) {
      throw_unsupported(name + " lies at offset " + std::to_string(offset) +
                        ", which is not a multiple of 32");
    }
    const size_t n_bytes = ggml_nbytes(tensor);
    if (data_offset > file_bytes || offset > file_bytes - data_offset ||
        n_bytes > file_bytes - data_offset - offset) {
      throw_damaged(name + " ends beyond the end of the file (" + std::to_string(file_bytes) +
                    " bytes): the file is cut off");
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

void GgufFile::throw_damaged(const std::string& what) const {
  throw Error(ErrorCode::kBadData, "'" + path() + "': " + what);
}

void GgufFile::throw_unsupported(const std::string& what) const {
  throw Error(ErrorCode::kUnsupported, "'" + path() + "': unsupported: " + what);
}

}  // namespace winnow::model
