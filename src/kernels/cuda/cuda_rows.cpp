#include "kernels/cuda/cuda_rows.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/check.h"

namespace winnow::kernels::cuda {
namespace {

size_t slots_of(int n_rows) {
  return static_cast<size_t>(cache::Cache::most_slots(n_rows));
}

size_t heads_of(const cache::CacheShape& shape) {
  return static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads);
}

}  // namespace

CudaRows::Ranges::Ranges(const cache::CacheShape& shape, size_t n_slots) {
  const auto round_up = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
  values = round_up(n_slots * shape.key_bytes());
  positions = values + round_up(n_slots * shape.value_bytes());
  scores = positions + round_up(n_slots * sizeof(int32_t));
  mass = scores + round_up(n_slots * sizeof(float));
  end = mass + round_up(n_slots * shape.mass_bytes());
}

CudaRows::CudaRows(const cache::CacheShape& shape, const DecodeShape& attention,
                   const Stream& stream)
    : shape_(shape),
      attention_(attention),
      stream_(stream),
      n_home_slots_(slots_of(shape.kept_rows > 0 ? std::min(shape.kept_rows, shape.max_rows)
                                                 : shape.max_rows)),
      at_home_(shape, n_home_slots_),
      in_zone_(shape, slots_of(shape.max_rows)),
      home_(heads_of(shape) * at_home_.end),
      counts_(heads_of(shape)),
      heads_(heads_of(shape)) {
  fill_bytes(counts_.data(), 0, counts_.size() * sizeof(DeviceCounts), stream_);
}

size_t CudaRows::committed_bytes() const {
  size_t bytes = home_.committed_bytes() + counts_.size() * sizeof(DeviceCounts);
  for (const auto& zone : zones_) {
    bytes += zone->arena.committed_bytes();
  }
  return bytes;
}

CudaRows::Zone& CudaRows::zone_of(int layer) {
  for (const int wanted : {layer, -1}) {
    for (const auto& zone : zones_) {
      if (zone->layer == wanted) {
        zone->layer = layer;
        return *zone;
      }
    }
  }
  zones_.push_back(std::make_unique<Zone>(static_cast<size_t>(shape_.n_kv_heads), in_zone_));
  zones_.back()->layer = layer;
  return *zones_.back();
}

HeadArrays CudaRows::arrays_in(const Zone* zone, int layer, int kv_head, int n) const {
  const Ranges& ranges = zone == nullptr ? at_home_ : in_zone_;
  std::byte* const data = zone == nullptr
                              ? home_.data() + head_index(layer, kv_head) * ranges.end
                              : zone->arena.data() + static_cast<size_t>(kv_head) * ranges.end;
  return {.keys = data,
          .values = data + ranges.values,
          .positions = reinterpret_cast<int32_t*>(data + ranges.positions),
          .scores = reinterpret_cast<float*>(data + ranges.scores),
          .n = n,
          .mass = shape_.stores_mass ? reinterpret_cast<long long*>(data + ranges.mass) : nullptr};
}

HeadArrays CudaRows::arrays(int layer, int kv_head, int n) const {
  return arrays_in(heads_[head_index(layer, kv_head)].zone, layer, kv_head, n);
}

void CudaRows::commit(Zone* zone, int layer, int kv_head, int first, int end) {
  Arena& arena = zone == nullptr ? home_ : zone->arena;
  const HeadArrays arrays = arrays_in(zone, layer, kv_head, 0);
  const auto commit_range = [&](const void* array, size_t element_bytes) {
    const auto begin = static_cast<size_t>(static_cast<const std::byte*>(array) - arena.data());
    arena.commit(begin + static_cast<size_t>(first) * element_bytes,
                 begin + static_cast<size_t>(end) * element_bytes);
  };
  commit_range(arrays.keys, shape_.key_bytes());
  commit_range(arrays.values, shape_.value_bytes());
  commit_range(arrays.positions, sizeof(int32_t));
  commit_range(arrays.scores, sizeof(float));
  if (arrays.mass != nullptr) {
    commit_range(arrays.mass, sizeof(long long));
  }
}

void CudaRows::move(int layer, int kv_head, Zone* to, int n_slots) {
  Head& head = heads_[head_index(layer, kv_head)];
  const HeadArrays from = arrays(layer, kv_head, n_slots);
  const HeadArrays target = arrays_in(to, layer, kv_head, n_slots);
  commit(to, layer, kv_head, 0, n_slots);
  const auto n = static_cast<size_t>(n_slots);
  if (n > 0) {
    copy_on_device(target.keys, from.keys, n * shape_.key_bytes(), stream_);
    copy_on_device(target.values, from.values, n * shape_.value_bytes(), stream_);
    copy_on_device(target.positions, from.positions, n * sizeof(int32_t), stream_);
    copy_on_device(target.scores, from.scores, n * sizeof(float), stream_);
    if (from.mass != nullptr) {
      copy_on_device(target.mass, from.mass, n * sizeof(long long), stream_);
    }
  }
  head.zone = to;
}

void CudaRows::grow(int layer, int kv_head, int n_slots, int n_more) {
  Head& head = heads_[head_index(layer, kv_head)];
  const int end = n_slots + n_more;
  WINNOW_CHECK(static_cast<size_t>(end) <= slots_of(shape_.max_rows));
  if (head.zone == nullptr && static_cast<size_t>(end) > n_home_slots_) {
    move(layer, kv_head, &zone_of(layer), n_slots);
  }
  commit(head.zone, layer, kv_head, n_slots, end);
}

void CudaRows::keep(int layer, int kv_head, std::span<const int> slots, int n_slots) {
  Head& head = heads_[head_index(layer, kv_head)];
  if (!head.kept) {
    head.kept.emplace(slots.begin(), slots.end());
    head.n_before = n_slots;
    return;
  }
  WINNOW_CHECK(std::ssize(*head.kept) == n_slots);
  std::vector<int> kept;
  kept.reserve(slots.size());
  for (const int slot : slots) {
    kept.push_back((*head.kept)[static_cast<size_t>(slot)]);
  }
  head.kept = std::move(kept);
}

void CudaRows::settle() {
  std::vector<HeadArrays> moved;
  std::vector<Quota> quotas;
  std::vector<int32_t> slots;
  size_t stride = 0;
  int most_rows = 0;
  bool has_kept = false;
  for (const Head& head : heads_) {
    has_kept |= head.kept.has_value();
    stride = std::max(stride, head.kept ? head.kept->size() : 0);
  }
  if (!has_kept) {
    return;
  }
  const auto for_each_kept = [this](auto&& body) {
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
      for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
        if (Head& head = heads_[head_index(layer, kv_head)]; head.kept) {
          body(layer, kv_head, head);
        }
      }
    }
  };
  for_each_kept([&](int layer, int kv_head, const Head& head) {
    if (std::ssize(*head.kept) == head.n_before) {
      return;
    }
    moved.push_back(arrays(layer, kv_head, head.n_before));
    quotas.push_back({.n_keep = static_cast<int>(head.kept->size()), .n_first = 0, .n_last = 0});
    slots.insert(slots.end(), head.kept->begin(), head.kept->end());
    slots.resize(moved.size() * stride);
    most_rows = std::max(most_rows, head.n_before);
  });
  if (!moved.empty()) {
    HeadArrays* const heads = reserve(moved_, moved.size());
    Quota* const of_heads = reserve(quotas_, quotas.size());
    int32_t* const to = reserve(slots_, slots.size());
    upload(heads, moved.data(), moved.size() * sizeof(HeadArrays), stream_);
    upload(of_heads, quotas.data(), quotas.size() * sizeof(Quota), stream_);
    upload(to, slots.data(), slots.size() * sizeof(int32_t), stream_);
    compact({shape_.head_dim, shape_.key_type, shape_.value_type},
            {heads, static_cast<int>(moved.size()), most_rows}, of_heads, {to, stride}, stream_);
  }
  for_each_kept([&](int layer, int kv_head, Head& head) {
    come_home(layer, kv_head, static_cast<int>(head.kept->size()));
    head.kept.reset();
  });
  stream_.wait();
  release_zones();
}

void CudaRows::come_home(int layer, int kv_head, int n_slots) {
  const Head& head = heads_[head_index(layer, kv_head)];
  if (head.zone != nullptr && static_cast<size_t>(n_slots) <= n_home_slots_) {
    move(layer, kv_head, nullptr, n_slots);
  }
}

void CudaRows::release_zones() {
  for (const auto& zone : zones_) {
    const auto lies_here = [&](const Head& head) { return head.zone == zone.get(); };
    zone->layer = std::ranges::any_of(heads_, lies_here) ? zone->layer : -1;
  }
}

void CudaRows::give_back_zones() {
  std::erase_if(zones_, [](const auto& zone) { return zone->layer < 0; });
}

// The source's work is on a stream of its own: what is copied is there, and stays until it has been.
void CudaRows::copy_beside(cache::RemoteRows& source) {
  auto& from = static_cast<CudaRows&>(source);
  from.settle();
  from.stream_.wait();
  copy_on_device(counts_.data(), from.counts_.data(), counts_.size() * sizeof(DeviceCounts),
                 stream_);
  if (from.queries_) {
    watch_queries(from.watched_);
    copy_on_device(queries_->data(), from.queries_->data(), queries_->size() * sizeof(float),
                   stream_);
  }
  stream_.wait();
}

void CudaRows::copy_kept(cache::RemoteRows& source, int layer, int kv_head,
                         std::span<const int> slots) {
  auto& from = static_cast<CudaRows&>(source);
  from.settle();
  from.stream_.wait();
  const auto n = static_cast<int>(slots.size());
  const std::vector<int32_t> of_rows(slots.begin(), slots.end());
  int32_t* const on_device = reserve(slots_, of_rows.size());
  upload(on_device, of_rows.data(), of_rows.size() * sizeof(int32_t), stream_);
  copy_rows({shape_.head_dim, shape_.key_type, shape_.value_type}, from.arrays(layer, kv_head, n),
            arrays(layer, kv_head, n), on_device, n, stream_);
  stream_.wait();
}

cache::Cache::AppendCounts CudaRows::counts(int layer, int kv_head) const {
  DeviceCounts counts{};
  copy_from_device(&counts, counts_on_device(layer, kv_head), sizeof(counts));
  return {.saturated = static_cast<int64_t>(counts.saturated),
          .nonfinite_keys = static_cast<int64_t>(counts.nonfinite_keys),
          .nonfinite_values = static_cast<int64_t>(counts.nonfinite_values)};
}

void CudaRows::read(int layer, int kv_head, int n_slots, std::byte* keys, std::byte* values) {
  settle();
  const HeadArrays from = arrays(layer, kv_head, n_slots);
  const auto n = static_cast<size_t>(n_slots);
  if (keys != nullptr) {
    copy_from_device(keys, from.keys, n * shape_.key_bytes());
  }
  if (values != nullptr) {
    copy_from_device(values, from.values, n * shape_.value_bytes());
  }
}

void CudaRows::write_values(int layer, int kv_head, int n_slots, const std::byte* values) {
  upload(arrays(layer, kv_head, n_slots).values, values,
         static_cast<size_t>(n_slots) * shape_.value_bytes(), stream_);
}

}  // namespace winnow::kernels::cuda
