// What a generated token reads of the rows that are kept: the pages whose keys may reach farthest along its queries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/scratch.h"
#include "cache/rows.h"
#include "kernels/attend.h"

namespace winnow::kernels {

struct PageRule {
  int n_pages = 0;     // that a head reads for a token, the newest among them; 0: all rows are read
  int page_rows = 16;  // rows of a page
  int n_whole_layers = 2;  // the first layers read all rows
  int n_channels = 0;      // how many channels rank a page; 0: all
  // Where it is not 0, n_pages, page_rows and n_channels follow from it once it is known how many rows are kept.
  int n_read = 0;

  bool is_wanted() const { return n_pages > 0 || n_read > 0; }
  // With nothing left open, for heads that keep so many rows. What n_read rows of n_kept hold is read: half of it the rows of
  // pages, half of it bounds, where c = n_kept / n_read pages are of min(floor(c), ceil(sqrt(c))) rows and ranked by
  // round(head_dim · page_rows / c) channels (RocketKV, Behnam et al., ICML 2025, arXiv 2502.14051, section 3.4). Nothing is
  // wanted where n_read rows are all.
  PageRule settled(int n_kept, int head_dim) const;
  bool operator==(const PageRule&) const = default;
};

// Bounds of the keys of each page, beside a cache whose rows stay where they are. A page is page_rows visible rows that
// follow each other, from the first on: so it does not depend on when evicted rows left their slots. Bounds are found when a
// page is first chosen among, and again after it has changed.
class PageReads {
 public:
  struct Shape {
    int n_layers = 0;
    int n_kv_heads = 0;
    int head_dim = 0;
    cache::RowType key_type = cache::RowType::kF16;
    PageRule rule = {};                 // settled
    std::vector<bool> is_watched = {};  // [n_layers]: the others read all rows
  };

  PageReads() = default;
  explicit PageReads(const Shape& shape);
  bool is_empty() const { return heads_.empty(); }

  // The runs of slots that the queries [gqa_group_size, head_dim] of a KV head read, ascending, until the next call for the
  // head; empty where they read all rows. Pages are ranked by the sum over the queries of the greatest product that a
  // key within the page's bounds could have with them (Tang et al., ICML 2024, arXiv 2406.10774, whose heads each rank for
  // themselves); of equal ones the first is read. With n_channels, only those channels count in which the absolute values of
  // the queries come to most. Different threads may ask for different heads. Throws std::bad_alloc.
  std::span<const RowRun> choose(int layer, int kv_head, const cache::HeadRows& rows,
                                 std::span<const float> queries, Scratch& scratch);

  // How many rows were read of those that there were, over all tokens and heads of layers without a window.
  struct Tally {
    int64_t n_read = 0;
    int64_t n_held = 0;

    double share() const {
      return n_held == 0 ? 1 : static_cast<double>(n_read) / static_cast<double>(n_held);
    }
  };
  Tally tally() const;

  size_t bytes() const;
  // What bytes() will at most be, for heads of so many slots.
  static size_t bytes(const Shape& shape, int n_slots);

 private:
  struct Head {
    std::vector<int32_t> positions;  // [n_bounded, page_rows] of the rows that bounds are of
    std::vector<std::byte> low;      // [n_bounded, head_dim] of key_type
    std::vector<std::byte> high;
    std::vector<RowRun> runs;
    Tally tally;
  };

  size_t row_bytes() const;
  size_t page_rows() const { return static_cast<size_t>(shape_.rule.page_rows); }
  void bound(Head& head, const cache::HeadRows& rows, std::span<const int> visible, size_t n_pages,
             Scratch& scratch) const;
  void rank(const Head& head, std::span<const float> queries, std::span<float> reach,
            Scratch& scratch) const;
  void keep_strong_channels(std::span<float> upwards, std::span<float> downwards,
                            Scratch& scratch) const;

  Shape shape_;
  std::vector<Head> heads_;  // [n_layers, n_kv_heads]
};

}  // namespace winnow::kernels
