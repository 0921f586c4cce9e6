// Cached rows in a GPU's memory, and append and attention on them: what StepContext is on the CPU, for graphs that are computed
// piece by piece, with rows appended and attended to in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/remote_rows.h"
#include "kernels/attend.h"

namespace winnow::kernels {

// Why there is no GPU to run on: none in the machine, no driver or one that is too old, or a build without kernels for GPUs. Empty
// where there is one.
std::string why_no_device();

struct DeviceMemoryLimit {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};
DeviceMemoryLimit device_memory_limit();

// The rows of a cache in device memory.
class DeviceRows : public cache::RemoteRows {
 public:
  // Copies of slots [0, n_slots) of a head: keys and values as they lie there; null: not wanted.
  virtual void read(int layer, int kv_head, int n_slots, std::byte* keys, std::byte* values) = 0;
  // The static scores of slots [0, n_slots[i]) of each KV head i, those of layer `first_layer` first, to scores [heads, stride].
  virtual void read_scores(int first_layer, std::span<const int> n_slots, size_t stride,
                           std::span<float> scores) = 0;
};

// A run of consecutive tokens of one sequence inside a step's batch.
struct DeviceSlice {
  cache::Cache* cache;
  int first_token;  // index in the batch
  int n_tokens;
  int first_pos;
  bool is_prompt;  // else one generated token
};

// Device memory in which graphs leave what attention takes, and take what it leaves: floats, [head_dim, heads, tokens] in ggml's
// order.
struct DeviceActivations {
  const float* queries;
  const float* keys;
  const float* values;
  float* attended;
};

class DeviceStep {
 public:
  virtual ~DeviceStep() = default;

  // Rows for a cache of this shape, which says is_remote. Throws resource_exhausted.
  virtual std::shared_ptr<DeviceRows> make_rows(const cache::CacheShape& shape) = 0;
  // Makes room for the slices' rows in layers [first_layer, first_layer + n_layers) and enters them in their caches. Of sequences
  // that generate, each has one token.
  virtual void begin(std::span<const DeviceSlice> slices, int first_layer, int n_layers,
                     const DeviceActivations& activations) = 0;
  // Appends the layer's new rows and attends to all that there are. Starts work and returns.
  virtual void attend(int layer) = 0;

  // Has `submit` start a step of generated tokens, or runs what it started before, recorded: where `key` and all that attention
  // depends on, but for what lies in device memory, are as they were twice in a row. `submit` begins and ends with this step's work.
  virtual void replay(uint64_t key, const std::function<void()>& submit) = 0;

  // Between device addresses; starts work and returns.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // From the host's memory, which may be overwritten at once, and to it; read() waits.
  virtual void write(void* to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, const void* from, size_t bytes) = 0;

  // Order with work of others: a CUDA event.
  virtual void wait_for(void* event) = 0;
  virtual void record(void* event) = 0;
  // Until all that was started is done. Throws internal where something failed.
  virtual void wait() = 0;
};

// Throws unsupported: no device, or shapes that have no kernel.
std::unique_ptr<DeviceStep> make_device_step(const AttendShape& attention,
                                             const cache::CacheShape& shape);

}  // namespace winnow::kernels
