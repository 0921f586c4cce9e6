#include "model/weight_expansion.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/memory.h"
#include "ggml-cpu.h"

namespace winnow::model {
namespace {

constexpr size_t kAlignment = 64;                 // a cache line; ggml asks for 32
constexpr int64_t kRowsPerPiece = 64;             // what a thread takes at a time
constexpr float kF16RoundsToInfinity = 65520.0F;  // halfway from the largest f16 to the next

size_t aligned(size_t n_bytes) {
  return (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Rows [first, last) of one matrix.
struct Piece {
  const ggml_tensor* source;
  ggml_tensor* target;
  int64_t first;
  int64_t last;
};

void to_floats(const ggml_tensor* source, int64_t row, std::span<float> values) {
  const char* data =
      static_cast<const char*>(source->data) + static_cast<size_t>(row) * source->nb[1];
  if (source->type == GGML_TYPE_F32) {
    std::memcpy(values.data(), data, values.size_bytes());
  } else {
    ggml_get_type_traits(source->type)
        ->to_float(data, values.data(), static_cast<int64_t>(values.size()));
  }
}

// Returns how many finite values became infinite.
size_t from_floats(std::span<const float> values, ggml_tensor* target, int64_t row) {
  char* data = static_cast<char*>(target->data) + static_cast<size_t>(row) * target->nb[1];
  const auto n = static_cast<int64_t>(values.size());
  switch (target->type) {
    case GGML_TYPE_F16: {
      ggml_fp32_to_fp16_row(values.data(), reinterpret_cast<ggml_fp16_t*>(data), n);
      const auto overflows = [](float x) {
        return std::fabs(x) >= kF16RoundsToInfinity && std::isfinite(x);
      };
      return static_cast<size_t>(std::count_if(values.begin(), values.end(), overflows));
    }
    case GGML_TYPE_BF16:
      ggml_fp32_to_bf16_row(values.data(), reinterpret_cast<ggml_bf16_t*>(data), n);
      return 0;
    default:
      std::memcpy(data, values.data(), values.size_bytes());
      return 0;
  }
}

size_t convert_piece(const Piece& piece, std::vector<float>& row_values) {
  size_t n_overflows = 0;
  row_values.resize(static_cast<size_t>(piece.source->ne[0]));
  for (int64_t row = piece.first; row < piece.last; ++row) {
    to_floats(piece.source, row, row_values);
    n_overflows += from_floats(row_values, piece.target, row);
  }
  return n_overflows;
}

}  // namespace

ExpandedMatrices::ExpandedMatrices(std::vector<const ggml_tensor*> sources, ggml_type type)
    : sources_(std::move(sources)) {
  descriptions_.reset(ggml_init({.mem_size = (sources_.size() + 1) * ggml_tensor_overhead(),
                                 .mem_buffer = nullptr,
                                 .no_alloc = true}));
  for (const ggml_tensor* source : sources_) {
    ggml_tensor* tensor =
        ggml_new_tensor_2d(descriptions_.get(), type, source->ne[0], source->ne[1]);
    ggml_set_name(tensor, source->name);
    tensors_.push_back(tensor);
    size_bytes_ += aligned(ggml_nbytes(tensor));
  }
  if (sources_.empty()) {
    return;
  }
  // A touched page never returns an error, so what does not fit is refused here.
  const MemoryLimit limit = available_memory();
  memory_ = size_bytes_ > limit.bytes ? MAP_FAILED
                                      : ::mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    throw Error(ErrorCode::kResourceExhausted, "weights as " + std::string(ggml_type_name(type)) +
                                                   " need " + format_bytes(size_bytes_) + "; " +
                                                   format_bytes(limit.bytes) + " are available (" +
                                                   limit.source + "). Use --weights file");
  }
  buffer_.reset(ggml_backend_cpu_buffer_from_ptr(memory_, size_bytes_));
  ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  char* next = static_cast<char*>(memory_);
  for (ggml_tensor* tensor : tensors_) {
    ggml_backend_tensor_alloc(buffer_.get(), tensor, next);
    next += aligned(ggml_nbytes(tensor));
  }
}

ExpandedMatrices::~ExpandedMatrices() {
  buffer_.reset();
  if (memory_ != nullptr) {
    ::munmap(memory_, size_bytes_);
  }
}

size_t ExpandedMatrices::convert(int n_threads) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const int64_t n_rows = sources_[i]->ne[1];
    for (int64_t row = 0; row < n_rows; row += kRowsPerPiece) {
      pieces.push_back({sources_[i], tensors_[i], row, std::min(row + kRowsPerPiece, n_rows)});
    }
  }
  std::atomic<size_t> next = 0;
  std::atomic<size_t> n_overflows = 0;
  const auto next_piece = [&next] { return next.fetch_add(1, std::memory_order_relaxed); };
  const auto work = [&](std::vector<float>& row_values) {
    for (size_t i = next_piece(); i < pieces.size(); i = next_piece()) {
      n_overflows.fetch_add(convert_piece(pieces[i], row_values), std::memory_order_relaxed);
    }
  };
  // A throw on a worker would end the process, so what may throw happens out here.
  int64_t longest = 0;
  for (const ggml_tensor* source : sources_) {
    longest = std::max(longest, source->ne[0]);
  }
  std::vector<std::vector<float>> scratch(static_cast<size_t>(std::max(n_threads, 1)),
                                          std::vector<float>(static_cast<size_t>(longest)));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < scratch.size(); ++i) {
      threads.emplace_back(work, std::ref(scratch[i]));
    }
    work(scratch[0]);
  }
  return n_overflows;
}

}  // namespace winnow::model
