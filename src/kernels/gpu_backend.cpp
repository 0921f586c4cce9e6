#include "kernels/gpu_backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "kernels/device_step.h"

namespace winnow::kernels {
namespace {

// ggml's events as ggml 0.25 has them (ggml-backend-impl.h, which is not installed): nothing public gives the CUDA event.
struct EventLayout {
  ggml_backend_dev_t device;
  void* handle;
};

// A module of its own beside ggml's libraries (scripts/setup --cuda), so that the same program runs where there is no driver.
std::string module_path() {
  Dl_info where{};
  WINNOW_CHECK(dladdr(reinterpret_cast<const void*>(&ggml_backend_load), &where) != 0);
  return std::filesystem::path(where.dli_fname).parent_path() / "libggml-cuda.so";
}

ggml_backend_dev_t find_device() {
  if (const std::string reason = why_no_device(); !reason.empty()) {
    throw Error(ErrorCode::kUnsupported, reason);
  }
  // A token's graphs are recorded as one, ours and ggml's; it must not record its own inside.
  ::setenv("GGML_CUDA_DISABLE_GRAPHS", "1", 1);
  ggml_backend_reg_t registry = ggml_backend_reg_by_name("CUDA");
  const std::string path = module_path();
  if (registry == nullptr) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      throw Error(ErrorCode::kUnsupported, "ggml's CUDA backend is not installed: there is no '" +
                                               path + "' (scripts/setup --cuda makes it)");
    }
    registry = ggml_backend_load(path.c_str());
  }
  if (registry == nullptr || ggml_backend_reg_dev_count(registry) == 0) {
    throw Error(ErrorCode::kUnsupported, "ggml's CUDA backend, '" + path +
                                             "', cannot be used with this ggml or this driver");
  }
  return ggml_backend_reg_dev_get(registry, 0);
}

}  // namespace

GpuBackend::GpuBackend()
    : device_(find_device()),
      backend_(ggml_backend_dev_init(device_, nullptr)),
      done_(ggml_backend_event_new(device_)),
      go_(ggml_backend_event_new(device_)) {
  if (backend_ == nullptr || done_ == nullptr || go_ == nullptr) {
    throw Error(ErrorCode::kUnsupported, "ggml's CUDA backend does not start");
  }
  WINNOW_CHECK(reinterpret_cast<const EventLayout*>(done_)->device == device_);
}

GpuBackend::~GpuBackend() {
  ggml_backend_event_free(done_);
  ggml_backend_event_free(go_);
  ggml_backend_free(backend_);
}

ggml_backend_buffer_type_t GpuBackend::buffer_type() const {
  return ggml_backend_get_default_buffer_type(backend_);
}

void GpuBackend::check_supported(ggml_cgraph* graph) const {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* const node = ggml_graph_node(graph, i);
    if (!ggml_backend_dev_supports_op(device_, node)) {
      throw Error(ErrorCode::kUnsupported,
                  std::string("ggml's CUDA backend cannot compute ") + ggml_op_desc(node) + " of " +
                      ggml_type_name(node->src[0] != nullptr ? node->src[0]->type : node->type) +
                      ", which the model needs; -ngl 0 runs it on the CPU");
    }
  }
}

void GpuBackend::start(ggml_cgraph* graph) {
  const ggml_status status = ggml_backend_graph_compute_async(backend_, graph);
  if (status != GGML_STATUS_SUCCESS) {
    throw Error(ErrorCode::kInternal, std::string("ggml could not compute a graph on the GPU: ") +
                                          ggml_status_to_string(status));
  }
}

void GpuBackend::wait() {
  ggml_backend_synchronize(backend_);
}

void* GpuBackend::mark_done() {
  ggml_backend_event_record(done_, backend_);
  return handle_of(done_);
}

void GpuBackend::wait_for_go() {
  ggml_backend_event_wait(backend_, go_);
}

void* GpuBackend::handle_of(ggml_backend_event_t event) const {
  return reinterpret_cast<const EventLayout*>(event)->handle;
}

void check_gpu() {
  find_device();
}

ggml_backend_buffer_type_t gpu_buffer_type() {
  return ggml_backend_dev_buffer_type(find_device());
}

}  // namespace winnow::kernels
