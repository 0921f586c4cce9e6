// ggml's CUDA backend: where weights lie and graphs run on a GPU.
#pragma once

#include "ggml-backend.h"
#include "ggml-cpp.h"

namespace winnow::kernels {

class GpuBackend {
 public:
  // Throws unsupported where there is no GPU, no kernel of ours for it, or no CUDA backend beside ggml's libraries.
  GpuBackend();
  ~GpuBackend();
  GpuBackend(const GpuBackend&) = delete;
  GpuBackend& operator=(const GpuBackend&) = delete;

  ggml_backend_buffer_type_t buffer_type() const;
  // Throws unsupported, naming the operation, where the graph has one that the backend lacks.
  void check_supported(ggml_cgraph* graph) const;

  // Starts a graph after all that was started before, and returns. Throws internal when ggml reports a failure.
  void start(ggml_cgraph* graph);
  void wait();

  // Order with work of others: the CUDA event that the last call of mark_done() recorded, and one that the backend's further work
  // waits for once another has recorded it.
  void* mark_done();
  void* go_event() const { return handle_of(go_); }
  void wait_for_go();

 private:
  void* handle_of(ggml_backend_event_t event) const;

  ggml_backend_dev_t device_;
  ggml_backend_t backend_;
  ggml_backend_event_t done_;
  ggml_backend_event_t go_;
};

// Throws unsupported where a GpuBackend could not be made.
void check_gpu();
// What its buffers are, without one; throws likewise.
ggml_backend_buffer_type_t gpu_buffer_type();

}  // namespace winnow::kernels
