#include "kernels/cpu_backend.h"

#include <string>

#include "base/error.h"

namespace winnow::kernels {

CpuBackend::CpuBackend(int n_threads)
    : backend_(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr)) {
  if (n_threads < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(n_threads) + " threads given; at least 1 is needed");
  }
  if (backend_ == nullptr) {
    throw Error(ErrorCode::kUnsupported, "this installation of ggml has no CPU backend");
  }
  // By way of the registry, since a ggml of loadable backends does not link the function itself.
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend_));
  const auto set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads"));
  WINNOW_CHECK(set_n_threads != nullptr);
  set_n_threads(backend_, n_threads);
}

CpuBackend::~CpuBackend() {
  ggml_backend_free(backend_);
}

ggml_backend_buffer_type_t CpuBackend::buffer_type() const {
  return ggml_backend_get_default_buffer_type(backend_);
}

void CpuBackend::compute(ggml_cgraph* graph) {
  const ggml_status status = ggml_backend_graph_compute(backend_, graph);
  if (status != GGML_STATUS_SUCCESS) {
    throw Error(ErrorCode::kInternal,
                std::string("ggml could not compute a graph: ") + ggml_status_to_string(status));
  }
}

}  // namespace winnow::kernels
