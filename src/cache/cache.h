// The KV cache of one sequence: for each (layer, KV head) one contiguous run of rows, each with its own length.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/rows.h"
#include "cache/storage.h"

namespace winnow::cache {

class RemoteRows;

struct CacheShape {
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  RowType key_type = RowType::kF16;
  RowType value_type = RowType::kF16;
  int max_rows = 0;                                    // rows a head may ever hold at once
  bool stores_scores = false;                          // keep a static score beside each row
  StaticScore score_kind = StaticScore::kSquaredNorm;  // of this kind
  bool stores_mass = false;          // and the softmax weight that it has received
  bool stores_output_norms = false;  // and what its value weighs in the layer's output
  bool stores_rotations = false;     // and the position that its key is rotated to
  int kept_rows = 0;                 // that most heads hold once they have been cut; 0: not known
  // Keys, values, scores and mass lie in a device's memory (cache/remote_rows.h).
  bool is_remote = false;
  // [n_layers]: how many positions a query of the layer sees, its own included; 0: all. Empty: all layers see all.
  std::vector<int> swa_windows = {};

  int swa_window(int layer) const;
  int n_windowed_layers() const;
  // Rows that no query sees any more may stay up to this number, so that decoding need not move the others for every
  // token.
  static int window_slack(int swa_window);
  // Bytes of the rows of so many positions when none is evicted, and windowed layers hold what is seen.
  size_t full_bytes(int n_positions) const;
  // Bytes of one row: key, value, position and (where stored) score, mass, output norm and rotation.
  size_t row_bytes() const;
  size_t key_bytes() const;  // of one row's key, and so on
  size_t value_bytes() const;
  size_t score_bytes() const;  // 0 where none is stored
  size_t mass_bytes() const;   // the same
  size_t output_norm_bytes() const;
  size_t rotation_bytes() const;
  // Address space that a cache of this shape reserves. What lies in a device's memory is no part of it.
  size_t reserved_bytes() const;
};

class Cache {
 public:
  // `remote`: where the rows are that lie in a device's memory, for shapes that say so.
  explicit Cache(const CacheShape& shape, std::shared_ptr<RemoteRows> remote = nullptr);

  const CacheShape& shape() const { return shape_; }
  RemoteRows* remote() const { return remote_.get(); }  // null where rows are the host's
  // Rows held. Slots may be up to kMaxEvictedSlots more: see keep().
  int n_cached(int layer, int kv_head) const { return head(layer, kv_head).n_cached(); }
  // Without keys, values, scores and mass where these are not in the host's memory.
  HeadRows rows(int layer, int kv_head) const;
  // Of the rows held [n_cached], ascending.
  std::vector<int32_t> positions(int layer, int kv_head) const;
  // Rows of the longest head of the layers without a window: the ones that policies cut.
  int longest() const;
  int longest_slots() const;  // the same with slots for rows

  // Where positions are those in the cache (policy option positions=contiguous): the next token's, behind the rows that
  // attention sees of the longest head.
  int next_contiguous() const;
  // Behind the highest position that a key was ever rotated to; 0 where rotations are not stored.
  int rotation_end() const;

  // Where the append kernel writes. Heads are independent: different threads may write different heads.
  struct Target {
    std::byte* keys;  // null, as values, scores and mass, where rows are not in the host's memory
    std::byte* values;
    int32_t* positions;
    float* scores;       // null when the cache keeps none
    int64_t* mass;       // the same; zeros
    int32_t* rotations;  // null when the cache keeps none
  };
  // The place of the next `n_rows` rows; there must be room (the engine checks before a step).
  Target reserve(int layer, int kv_head, int n_rows);
  struct AppendCounts {
    int64_t saturated = 0;         // finite elements beyond the row type, stored as its largest
    int64_t nonfinite_keys = 0;    // key elements that were infinite or not a number
    int64_t nonfinite_values = 0;  // the same for values
  };
  // Makes `n_rows` rows written at the target part of the head.
  void commit(int layer, int kv_head, int n_rows, const AppendCounts& counts);
  // What the rows have received [n slots], for attention to add to. Null when the cache keeps none.
  int64_t* mass(int layer, int kv_head);
  // The static scores [n slots], for those that are found after append. Null likewise.
  float* scores(int layer, int kv_head);

  // Evicts all rows but those at `slots` (ascending, unique), and gives their memory back. Moving a head's rows for
  // every one that decoding evicts would cost more than attending to them, so a few evicted rows stay in their slots,
  // hidden, until there are more than kMaxEvictedSlots. They are not cached any more, never come back, and their pages
  // count as committed. On a device moving costs little, and none stays.
  void keep(int layer, int kv_head, std::span<const int> slots);
  static constexpr int kMaxEvictedSlots = 32;
  static constexpr int most_slots(int max_rows) { return max_rows + kMaxEvictedSlots; }
  // The same where the device has moved the rows together already: only the books are to follow. `slots`: of the rows that went
  // or of those that stay; none is hidden.
  void follow(int layer, int kv_head, std::span<const int32_t> slots, bool are_lost);
  // For rows that stay to change. Whoever writes says so before the next cut.
  std::byte* keys(int layer, int kv_head);    // [n slots, head_dim] of key_type
  std::byte* values(int layer, int kv_head);  // the same of value_type
  // The keys at `slots` (ascending, unique) are others now: the head cannot be trimmed across the change.
  void commit_keys(int layer, int kv_head, std::span<const int> slots);
  // The same for values, of which it is unknown then what they weigh in the output.
  void commit_values(int layer, int kv_head, std::span<const int> slots,
                     const AppendCounts& counts);
  // In a layer with a window: gives the rows back that no query after `last_pos` sees, once there are window_slack() of
  // them. They do not count as evicted.
  void drop_unseen(int layer, int last_pos);
  // Fills the empty head with the rows at `slots` (ascending, unique) of the same head of `source`, a cache of the same
  // row types, and goes on from what has happened to that head; rows left out count as evicted. Where this cache
  // stores scores, those of all the source's rows are in `scores` [n_slots]; where it stores mass, so does the source.
  void copy_kept(const Cache& source, int layer, int kv_head, std::span<const int> slots,
                 const float* scores);

  // Keeps the rows where they are but hides all others from attention: the oracle of `keep`, and what
  // counterfactual bans are made of. Frees nothing.
  void hide_others(int layer, int kv_head, std::span<const int> slots);

  // The lengths that the cache can be cut back to and be as it was at that length: 0 … intact, since no row before has
  // ever gone, and settled … , since no row has gone after. Between them some head lacks a row that it held then. A row
  // that has left its layer's window counts as gone where the next position's window would reach it.
  struct TrimBounds {
    int intact = INT_MAX;
    int settled = 0;

    // The row of position `first` is the first that goes, and none from position `end` on.
    void lose(int first, int end) {
      intact = std::min(intact, first);
      settled = std::max(settled, end);
    }
  };
  TrimBounds trim_bounds() const;
  // The first head that cannot be cut back to so many positions, and the lowest position whose row it lacks or has changed.
  struct MissingRow {
    int layer;
    int kv_head;
    int pos;
  };
  std::optional<MissingRow> missing_row(int n_positions) const;
  // Removes the rows of positions from n_positions on; no row may be missing. Counts and peak stay: they are of all
  // that has happened.
  void trim(int n_positions);
  // Whether policies have taken rows of positions before the newest one held.
  bool has_gaps() const;

  // Row bytes: what the rows now held take. Committed bytes: the pages that they, evicted slots, and slots that the next
  // rows will take again lie on.
  size_t now_bytes() const;
  size_t peak_bytes() const { return peak_bytes_; }
  size_t committed_bytes() const;
  // Takes now_bytes() into the peak. Called by the engine thread after each step.
  void record_peak();

  int64_t rows_evicted() const;
  AppendCounts append_counts() const;

  // What has happened to a head.
  struct History {
    int64_t n_evicted = 0;
    TrimBounds trim = {};
    AppendCounts counts = {};
  };
  History history(int layer, int kv_head) const;
  // As commit(), for an empty head that goes on from such a history; the rows' appending is part of it.
  void restore(int layer, int kv_head, int n_rows, const History& history);

 private:
  struct Head {
    int n_slots = 0;
    int n_evicted_slots = 0;
    int n_hidden = 0;   // slots that attention does not see, evicted ones included
    int n_touched = 0;  // slots whose pages may be resident
    int rotation_end = 0;
    int64_t n_evicted = 0;
    TrimBounds trim;
    AppendCounts counts;
    std::vector<uint8_t> hidden;  // [n_slots] Visibility; empty: all are visible

    int n_cached() const { return n_slots - n_evicted_slots; }
  };
  struct Ranges {  // byte offsets of a head's arrays in the storage
    size_t keys = 0, values = 0, positions = 0, scores = 0, mass = 0, output_norms = 0;
    size_t rotations = 0, end = 0;
  };

  // The most of the heads of layers without a window.
  template <class Count>
  int most(const Count& count) const;
  Head& head(int layer, int kv_head);
  const Head& head(int layer, int kv_head) const;
  Ranges ranges(int layer, int kv_head) const;
  float* output_norms(int layer, int kv_head) const;  // [n slots], null when the cache keeps none
  static void record_evicted(Head& state, int n_cached, const HeadRows& before,
                             std::span<const int> slots);
  // moves_rows: else a device has moved them.
  void compact(int layer, int kv_head, std::span<const int> slots, bool moves_rows = true);
  void give_back_behind(int layer, int kv_head);  // the pages behind the head's last slot
  static void mark_evicted(Head& state, std::span<const int> slots);
  static void count_hidden(Head& state);

  CacheShape shape_;
  std::shared_ptr<RemoteRows> remote_;
  Storage storage_;
  Ranges first_;             // of the first head
  std::vector<Head> heads_;  // [n_layers, n_kv_heads]
  size_t peak_bytes_ = 0;
};

}  // namespace winnow::cache
