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
#include "kernels/query_window.h"
#include "kernels/row_formula.h"

namespace winnow::kernels {

// Sums of weights of single queries are taken part by part, of so many positions from 0 on.
inline constexpr int kSumsPart = 1024;

// Why there is no GPU to run on: none in the machine, no driver or one that is too old, or a build without kernels for GPUs. Empty
// where there is one.
std::string why_no_device();

struct DeviceMemoryLimit {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};
DeviceMemoryLimit device_memory_limit();

// The last queries of a layer that were remembered: n_queries from first_pos on.
struct WindowQueries {
  int layer;
  int first_pos;
  int n_queries;
};

// How a head is cut: of its rows, none of which is hidden, the first n_first, the last n_last and the best of the others stay,
// n_keep in all.
struct DeviceCut {
  int layer;
  int kv_head;
  int n;
  int n_keep;
  int n_first;
  int n_last;
};

// Which slots a cut took or left, whichever are fewer: of cut i those from slots + i * stride on, ascending.
struct CutSlots {
  bool are_lost;  // else kept
  const int32_t* slots;
  size_t stride;
  int64_t n_nan;  // scores that were compared, and are not a number
  double ms;      // of the device's time that it took
};

// The rows of a cache in device memory.
class DeviceRows : public cache::RemoteRows {
 public:
  // Copies of slots [0, n_slots) of a head: keys and values as they lie there; null: not wanted.
  virtual void read(int layer, int kv_head, int n_slots, std::byte* keys, std::byte* values) = 0;
  // The static scores of slots [0, n_slots[i]) of each KV head i, those of layer `first_layer` first, to scores [heads, stride].
  virtual void read_scores(int first_layer, std::span<const int> n_slots, size_t stride,
                           std::span<float> scores) = 0;
  // Likewise their column mass.
  virtual void read_mass(int first_layer, std::span<const int> n_slots, size_t stride,
                         std::span<int64_t> mass) = 0;
  // The softmax weights that the layer's rows [n_kv_heads] get of queries, summed over these, for each query head: mass
  // [n_heads, stride] in units of 1 / kWindowMassScale. Of `rows` the numbers and marks of slots are read.
  virtual void read_window_mass(const WindowQueries& queries, std::span<const cache::HeadRows> rows,
                                size_t stride, std::span<int64_t> mass) = 0;
  // Values of slots [0, n_slots), in the place of those there are.
  virtual void write_values(int layer, int kv_head, int n_slots, const std::byte* values) = 0;
  // Scores the rows of heads, in the order of layers and whole layers each, selects, and moves those that stay together. The formula's
  // queries are those up to end_pos; n_positions have been fed. Starts work and returns; other layers may be read meanwhile.
  virtual void start_cut(const RowFormula& formula, std::span<const DeviceCut> heads, int end_pos,
                         int n_positions) = 0;
  // Waits for what start_cut() has started, once for each call. The result is good until the next start_cut().
  virtual CutSlots finish_cut() = 0;
  // The queries that are remembered of a layer, to QueryWindow::ring(); does nothing where none are.
  virtual void read_queries(int layer, std::span<float> queries) = 0;
};

// A run of consecutive tokens of one sequence inside a step's batch.
struct DeviceSlice {
  cache::Cache* cache;
  int first_token;  // index in the batch
  int n_tokens;
  int first_pos;
  bool is_prompt;                        // else one generated token
  int first_rotation = 0;                // what its query and key are rotated to
  const QueryWindow* queries = nullptr;  // what of the tokens' queries is remembered; null: nothing
  float mass_decay = 1;                  // a generated token multiplies column mass with this first
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
