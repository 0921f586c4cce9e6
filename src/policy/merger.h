// The optional part after selecting: what becomes of the rows that go. Those that stay may take something of them along.
#pragma once

#include <span>

#include "base/scratch.h"
#include "policy/scorer.h"

namespace winnow::policy {

// The rows of one KV head when some of them go, as attention sees them.
struct Parting {
  const LayerView& layer;
  int kv_head;
  std::span<const int> kept;  // slots of the rows that stay, ascending
  std::span<const int> lost;  // of those that go, likewise; none is hidden

  const cache::HeadRows& rows() const { return layer.heads[static_cast<size_t>(kv_head)]; }
};

// What becomes of rows that stay. Positions, column mass and what was noted of their keys stay theirs.
struct NewRows {
  std::span<const int> rows;                  // [n] indices into Parting::kept, ascending
  std::span<const float> values = {};         // [n, head_dim] from then on; empty: as they were
  std::span<const int> silent_channels = {};  // of their keys: 0 from then on
};

// The value of a row that goes, folded into that of one that was there when it went, and may go later: v(to) becomes
// (1 - weight) v(to) + weight v(from). In order.
struct Fold {
  int from;  // slots
  int to;
  float weight;
};

class Merger {
 public:
  virtual ~Merger() = default;

  // Beside what the scorer needs.
  virtual Needs needs() const = 0;
  // Whether there are silent channels.
  virtual bool changes_keys() const { return false; }
  // The result lies in `scratch`, until the caller's frame ends. Called for different heads at the same time. Rows that are
  // not finite are not merged.
  virtual NewRows merge(const Parting& parting, Scratch& scratch) const = 0;
};

// The values of the kept rows of a head that the folds change. Rows that are not finite neither give nor take. As
// Merger::merge().
NewRows apply_folds(const cache::HeadRows& rows, std::span<const int> kept,
                    std::span<const Fold> folds, Scratch& scratch);

}  // namespace winnow::policy
