// The GPU that the kernels of this folder run on: whether there is one, its memory, its streams and graphs, its errors.
//
// No header of CUDA is needed to include this.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

struct CUstream_st;
struct CUgraphExec_st;
struct CUevent_st;

namespace winnow::kernels::cuda {

// Why no kernel can run here: no GPU, no driver or one that is too old, a GPU without code in this build. Empty when they can.
std::string why_unavailable();

// Throws unsupported with that reason.
void check_available();

// What the kernels' shapes depend on.
struct DeviceLimits {
  int n_multiprocessors = 0;
  size_t shared_bytes_per_block = 0;
  size_t shared_bytes_per_multiprocessor = 0;
};
const DeviceLimits& device_limits();

struct DeviceMemory {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};
DeviceMemory device_memory();

// Where work is put in order. Work on one stream runs one after the other; a call that starts it does not wait.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream_st* get() const { return stream_; }
  // Waits until all is done. Throws internal if something failed: then the contents of device memory are lost, the process is
  // not.
  void wait() const;

 private:
  CUstream_st* stream_ = nullptr;
};

// What `record` put on a stream, to be run again without being submitted piece by piece.
class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& record);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(const Stream& stream) const;

 private:
  CUgraphExec_st* graph_ = nullptr;
};

// A moment of a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream);
  void wait() const;
  // Microseconds from `earlier` to here; waits for both.
  double us_since(const Event& earlier) const;

 private:
  CUevent_st* event_ = nullptr;
};

// A piece of device memory. Throws resource_exhausted when there is not enough.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory of the host that the GPU writes beside other work.
class HostBuffer {
 public:
  explicit HostBuffer(size_t bytes);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Copies; both wait.
void copy_to_device(void* to, const void* from, size_t bytes);
void copy_from_device(void* to, const void* from, size_t bytes);
void fill_bytes(void* to, int value, size_t bytes, const Stream& stream);
// Into memory of HostBuffer, without waiting.
void start_copy_from_device(void* to, const void* from, size_t bytes, const Stream& stream);
void copy_on_device(void* to, const void* from, size_t bytes, const Stream& stream);
// The same in order with a stream's work: what is given may be overwritten at once.
void upload(void* to, const void* from, size_t bytes, const Stream& stream);

// An array of device memory.
template <class T>
class Array {
 public:
  explicit Array(size_t n) : n_(n), buffer_(n * sizeof(T)) {}
  explicit Array(std::span<const T> from) : Array(from.size()) { set(from); }

  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  size_t size() const { return n_; }
  void set(std::span<const T> from) { copy_to_device(data(), from.data(), from.size_bytes()); }
  std::vector<T> get() const {
    std::vector<T> values(n_);
    copy_from_device(values.data(), data(), n_ * sizeof(T));
    return values;
  }

 private:
  size_t n_;
  Buffer buffer_;
};

}  // namespace winnow::kernels::cuda
