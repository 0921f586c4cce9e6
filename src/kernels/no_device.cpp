// What a build without kernels for GPUs says about them.

#include "base/error.h"
#include "kernels/device_step.h"

namespace winnow::kernels {

std::string why_no_device() {
  return "this winnow was built without kernels for GPUs (-DWINNOW_CUDA=ON)";
}

DeviceMemoryLimit device_memory_limit() {
  return {};
}

std::unique_ptr<DeviceStep> make_device_step(const AttendShape& /*attention*/,
                                             const cache::CacheShape& /*shape*/) {
  throw Error(ErrorCode::kUnsupported, why_no_device());
}

}  // namespace winnow::kernels
