// The rows of one cache in the memory of a GPU.
//
// Memory is mapped in granules of 2 MiB, which is more than a head keeps of a small model. So all heads have a home, one behind the
// other and just large enough for what is kept once rows have been cut; a layer with longer heads, such as one that reads a prompt,
// lies in a zone of its own until it is cut, and the next layer takes that over.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/append_rows.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/attend_prompt.h"
#include "kernels/cuda/column_mass.h"
#include "kernels/cuda/row_worth.h"
#include "kernels/device_step.h"

namespace winnow::kernels::cuda {

// Memory for n elements, kept from call to call.
template <class T>
T* reserve(std::optional<Array<T>>& array, size_t n) {
  const size_t had = array ? array->size() : 0;
  if (had < n || !array) {
    array.reset();
    array.emplace(std::max(n, had + had / 2));
  }
  return array->data();
}

class CudaRows : public DeviceRows {
 public:
  CudaRows(const cache::CacheShape& shape, const DecodeShape& attention, const Stream& stream);

  void grow(int layer, int kv_head, int n_slots, int n_more) override;
  void keep(int layer, int kv_head, std::span<const int> slots, int n_slots) override;
  void copy_beside(cache::RemoteRows& source) override;
  void copy_kept(cache::RemoteRows& source, int layer, int kv_head,
                 std::span<const int> slots) override;
  cache::Cache::AppendCounts counts(int layer, int kv_head) const override;
  size_t committed_bytes() const override;
  void read(int layer, int kv_head, int n_slots, std::byte* keys, std::byte* values) override;
  void read_scores(int first_layer, std::span<const int> n_slots, size_t stride,
                   std::span<float> scores) override;
  void read_mass(int first_layer, std::span<const int> n_slots, size_t stride,
                 std::span<int64_t> mass) override;
  void read_window_mass(const WindowQueries& queries, std::span<const cache::HeadRows> rows,
                        size_t stride, std::span<int64_t> mass) override;
  void start_cut(const RowFormula& formula, std::span<const DeviceCut> heads, int end_pos,
                 int n_positions) override;
  CutSlots finish_cut() override;
  void write_values(int layer, int kv_head, int n_slots, const std::byte* values) override;
  void read_queries(int layer, std::span<float> queries) override;

  // Remembers the last queries of layers, as the shape says.
  void watch_queries(const QueryWindow::Shape& shape);
  // Where those of a layer are [n_queries, n_heads, head_dim]; null: they are not remembered.
  float* ring(int layer) const;
  int n_ring() const { return watched_.n_queries; }

  // Carries out what keep() was asked for. Waits where rows move.
  void settle();
  // Gives back the memory of zones that no layer lies in. No work on rows may be under way.
  void give_back_zones();

  HeadArrays arrays(int layer, int kv_head, int n) const;
  DeviceCounts* counts_on_device(int layer, int kv_head) const {
    return counts_.data() + head_index(layer, kv_head);
  }

 private:
  // Where the arrays of a head with room for so many slots are, from its beginning.
  struct Ranges {
    explicit Ranges(const cache::CacheShape& shape, size_t n_slots);
    size_t values, positions, scores, mass, end;
  };
  struct Zone {
    Zone(size_t n_heads, const Ranges& ranges) : arena(n_heads * ranges.end) {}
    Arena arena;
    int layer = -1;  // that lies here; -1: none
  };
  struct Head {
    Zone* zone = nullptr;                  // null: at home
    std::optional<std::vector<int>> kept;  // not moved yet
    int n_before = 0;                      // slots that these are of
  };

  size_t head_index(int layer, int kv_head) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) +
           static_cast<size_t>(kv_head);
  }
  Zone& zone_of(int layer);
  HeadArrays arrays_in(const Zone* zone, int layer, int kv_head, int n) const;
  // Makes memory for slots [first, end) of a head in a zone, or at home.
  void commit(Zone* zone, int layer, int kv_head, int first, int end);
  void move(int layer, int kv_head, Zone* to, int n_slots);
  // To its home, where it is not there and a head of so many slots has room.
  void come_home(int layer, int kv_head, int n_slots);
  void release_zones();
  // The arrays of heads from those of a layer on, on the device.
  Heads upload_heads(int first_layer, std::span<const int> n_slots, size_t stride);
  void compute_window_mass(const WindowQueries& queries, std::span<const cache::HeadRows> rows,
                           size_t stride, long long* mass);

  cache::CacheShape shape_;
  DecodeShape attention_;
  const Stream& stream_;
  size_t n_home_slots_;
  Ranges at_home_;
  Ranges in_zone_;
  Arena home_;
  std::vector<std::unique_ptr<Zone>> zones_;
  Array<DeviceCounts> counts_;  // [heads]
  std::vector<Head> heads_;
  QueryWindow::Shape watched_;
  std::optional<Array<float>>
      queries_;  // of the watched layers, [n_queries, n_heads, head_dim] each
  // Scratch on the device.
  std::optional<Array<HeadArrays>> moved_;
  std::optional<Array<Quota>> quotas_;
  std::optional<Array<int32_t>> slots_;
  std::optional<Array<float>> gathered_;
  std::optional<Array<long long>> gathered_mass_;
  std::optional<Array<uint8_t>> hidden_;
  std::optional<Array<PromptHead>> window_heads_;
  std::optional<Array<MassHead>> mass_heads_;
  std::optional<Array<WeightSum>> sums_;
  std::optional<Array<std::byte>> images_;
  std::optional<Array<HeadArrays>> scored_;
  std::optional<Array<WorthInputs>> inputs_;
  std::optional<Array<int32_t>> lost_;
  std::optional<Array<int32_t>> n_nan_;
  // Of the last cut.
  struct LastCut {
    size_t n_heads = 0;
    bool are_lost = false;
    size_t stride = 0;
    bool is_under_way = false;
  };
  LastCut last_cut_;
  Event cut_begins_;
  Event cut_ends_;
  Event cut_is_told_;
  std::unique_ptr<HostBuffer>
      told_;  // slots [heads, stride], then scores that are no number [heads]
};

}  // namespace winnow::kernels::cuda
