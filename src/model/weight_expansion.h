// Matrices of the file, brought to one floating-point type in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ggml-cpp.h"
#include "ggml.h"

namespace winnow::model {

// Copies of matrices in anonymous memory, which they own.
class ExpandedMatrices {
 public:
  // Reserves memory for all of `sources` as `type`; throws resource_exhausted. Nothing is converted yet.
  ExpandedMatrices(std::vector<const ggml_tensor*> sources, ggml_type type);
  ~ExpandedMatrices();
  ExpandedMatrices(const ExpandedMatrices&) = delete;
  ExpandedMatrices& operator=(const ExpandedMatrices&) = delete;

  // Converts every row, shared out to `n_threads` threads. Returns how many values of the sources are
  // finite but too large for the type.
  size_t convert(int n_threads);

  ggml_tensor* tensor(size_t i) const { return tensors_[i]; }  // the copy of sources[i]
  size_t size_bytes() const { return size_bytes_; }

 private:
  std::vector<const ggml_tensor*> sources_;
  std::vector<ggml_tensor*> tensors_;
  ggml_context_ptr descriptions_;
  ggml_backend_buffer_ptr buffer_;
  void* memory_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace winnow::model
