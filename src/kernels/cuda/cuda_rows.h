// The rows of one cache in the memory of a GPU.
//
// Memory is mapped in granules of 2 MiB, which is more than a head keeps of a small model. So all heads have a home, one behind the
// other and just large enough for what is kept once rows have been cut; a layer with longer heads, such as one that reads a prompt,
// lies in a zone of its own until it is cut, and the next layer takes that over.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/append_rows.h"
#include "kernels/cuda/arena.h"
#include "kernels/device_step.h"

namespace winnow::kernels::cuda {

class CudaRows : public DeviceRows {
 public:
  CudaRows(const cache::CacheShape& shape, const Stream& stream);

  void grow(int layer, int kv_head, int n_slots, int n_more) override;
  void keep(int layer, int kv_head, std::span<const int> slots, int n_slots) override;
  cache::Cache::AppendCounts counts(int layer, int kv_head) const override;
  size_t committed_bytes() const override;
  void read(int layer, int kv_head, int n_slots, std::byte* keys, std::byte* values) override;
  void read_scores(int first_layer, std::span<const int> n_slots, size_t stride,
                   std::span<float> scores) override;

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
    size_t values, positions, scores, end;
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

  cache::CacheShape shape_;
  const Stream& stream_;
  size_t n_home_slots_;
  Ranges at_home_;
  Ranges in_zone_;
  Arena home_;
  std::vector<std::unique_ptr<Zone>> zones_;
  Array<DeviceCounts> counts_;  // [heads]
  std::vector<Head> heads_;
  // Of settle() and read_scores(), on the device.
  std::optional<Array<HeadArrays>> moved_;
  std::optional<Array<Quota>> quotas_;
  std::optional<Array<int32_t>> slots_;
  std::optional<Array<float>> gathered_;
};

}  // namespace winnow::kernels::cuda
