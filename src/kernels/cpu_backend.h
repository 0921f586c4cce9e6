// ggml's CPU backend: what graphs and the parallel-for run on.
#pragma once

#include "ggml-backend.h"

namespace winnow::kernels {

class CpuBackend {
 public:
  // Throws invalid_argument for fewer than one thread, unsupported when this ggml has no CPU backend.
  explicit CpuBackend(int n_threads);
  ~CpuBackend();
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;

  ggml_backend_buffer_type_t buffer_type() const;

  // Throws internal when ggml reports a failure.
  void compute(ggml_cgraph* graph);

 private:
  ggml_backend_t backend_;
};

}  // namespace winnow::kernels
