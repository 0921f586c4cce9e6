#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "base/error.h"
#include "kernels/cuda/check.h"

namespace winnow::kernels::cuda {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // so that it is not found again by the next call
  const ErrorCode code =
      result == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted : ErrorCode::kInternal;
  throw Error(code, std::string(what) + " failed on the GPU: " + cudaGetErrorString(result));
}

std::string why_unavailable() {
  int n_devices = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&n_devices); result != cudaSuccess) {
    cudaGetLastError();
    return std::string("no GPU can be used: ") + cudaGetErrorString(result);
  }
  if (n_devices == 0) {
    return "no GPU was found";
  }
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  if (major < 9) {
    return "the GPU has compute capability " + std::to_string(major) +
           ".x; the kernels need 9.0 or newer";
  }
  return "";
}

void check_available() {
  if (const std::string reason = why_unavailable(); !reason.empty()) {
    throw Error(ErrorCode::kUnsupported, reason);
  }
}

const DeviceLimits& device_limits() {
  static const DeviceLimits limits = [] {
    const auto attribute = [](cudaDeviceAttr name) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, name, 0), "asking for the GPU's limits");
      return value;
    };
    return DeviceLimits{.n_multiprocessors = attribute(cudaDevAttrMultiProcessorCount),
                        .shared_bytes_per_block =
                            static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
                        .shared_bytes_per_multiprocessor = static_cast<size_t>(
                            attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor))};
  }();
  return limits;
}

DeviceMemory device_memory() {
  DeviceMemory memory;
  check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes), "asking for free memory");
  return memory;
}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

Stream::~Stream() {
  cudaStreamDestroy(stream_);
}

void Stream::wait() const {
  check(cudaStreamSynchronize(stream_), "work on a stream");
}

Graph::Graph(const Stream& stream, const std::function<void()>& record) {
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), "recording");
  cudaGraph_t recorded = nullptr;
  try {
    record();
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &recorded);
    cudaGraphDestroy(recorded);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &recorded), "recording");
  const cudaError_t result = cudaGraphInstantiate(&graph_, recorded, 0);
  cudaGraphDestroy(recorded);
  check(result, "making a graph");
}

Graph::~Graph() {
  cudaGraphExecDestroy(graph_);
}

void Graph::launch(const Stream& stream) const {
  check(cudaGraphLaunch(graph_, stream.get()), "launching a graph");
}

Event::Event() {
  check(cudaEventCreate(&event_), "making an event");
}

Event::~Event() {
  cudaEventDestroy(event_);
}

void Event::record(const Stream& stream) {
  check(cudaEventRecord(event_, stream.get()), "recording an event");
}

void Event::wait() const {
  check(cudaEventSynchronize(event_), "work before an event");
}

double Event::us_since(const Event& earlier) const {
  check(cudaEventSynchronize(event_), "work before an event");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, earlier.event_, event_), "reading a time");
  return static_cast<double>(ms) * 1000;
}

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) {
    return;
  }
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorCode::kResourceExhausted,
                std::to_string(bytes) + " bytes of GPU memory are wanted, " +
                    std::to_string(device_memory().free_bytes) + " are free");
  }
  data_ = static_cast<std::byte*>(memory);
}

Buffer::~Buffer() {
  cudaFree(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostBuffer::HostBuffer(size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorCode::kResourceExhausted,
                "no " + std::to_string(bytes) + " bytes of memory that the GPU can write");
  }
  data_ = static_cast<std::byte*>(memory);
}

HostBuffer::~HostBuffer() {
  cudaFreeHost(data_);
}

void copy_to_device(void* to, const void* from, size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the GPU");
  // From pageable memory the call may return before the copy is visible to streams that do not block.
  check(cudaDeviceSynchronize(), "copying to the GPU");
}

void copy_from_device(void* to, const void* from, size_t bytes) {
  check(cudaDeviceSynchronize(), "work on the GPU");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the GPU");
}

void start_copy_from_device(void* to, const void* from, size_t bytes, const Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream.get()),
        "copying from the GPU");
}

void fill_bytes(void* to, int value, size_t bytes, const Stream& stream) {
  check(cudaMemsetAsync(to, value, bytes, stream.get()), "filling memory");
}

void copy_on_device(void* to, const void* from, size_t bytes, const Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.get()), "copying");
}

void upload(void* to, const void* from, size_t bytes, const Stream& stream) {
  // From pageable memory: staged before the call returns.
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream.get()),
        "copying to the GPU");
}

}  // namespace winnow::kernels::cuda
