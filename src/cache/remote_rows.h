// The rows of a cache that lie in a device's memory: what the cache, which keeps account of them, asks of it.
#pragma once

#include <cstddef>
#include <span>

#include "cache/cache.h"

namespace winnow::cache {

// Keys, values, static scores and column mass of every (layer, KV head) of a cache, and a copy of the positions. Heads are independent: keep()
// may be called for different ones at the same time.
class RemoteRows {
 public:
  virtual ~RemoteRows() = default;

  // Makes room for n_more slots behind the n_slots of a head. Throws resource_exhausted.
  virtual void grow(int layer, int kv_head, int n_slots, int n_more) = 0;
  // Of slots [0, n_slots), moves the rows at `slots` (ascending, unique) together and gives the memory behind them back, before
  // rows are next read or written.
  virtual void keep(int layer, int kv_head, std::span<const int> slots, int n_slots) = 0;
  // Takes over what is beside the rows of `source`, of the same device: counts, and what is remembered of queries.
  virtual void copy_beside(RemoteRows& source) = 0;
  // Copies the rows at `slots` (ascending, unique) of the same head of `source` to the first slots of a head, for which there is room.
  virtual void copy_kept(RemoteRows& source, int layer, int kv_head,
                         std::span<const int> slots) = 0;
  // Of all rows that were ever appended.
  virtual Cache::AppendCounts counts(int layer, int kv_head) const = 0;
  // Device memory that is taken.
  virtual size_t committed_bytes() const = 0;
};

}  // namespace winnow::cache
