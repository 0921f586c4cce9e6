// The second of a policy's five answers: how many rows may each layer and each KV head keep?
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/division.h"
#include "policy/scorer.h"
#include "policy/select.h"

namespace winnow::policy {

// Divides the budget over the layers that policies cut.
class LayerAllocator {
 public:
  virtual ~LayerAllocator() = default;

  // Beside what the scorer needs.
  virtual Needs needs() const { return {}; }
  // Throws invalid_argument where it cannot divide over so many.
  virtual void check_shape(int /*n_layers*/, int /*n_kv_heads*/) const {}

  // Whether it looks at rows. Then measure() says of each layer, once all have been read, what allocate() compares; called
  // for different layers at the same time.
  virtual bool measures() const { return false; }
  virtual double measure(const LayerView& /*layer*/, Scratch& /*scratch*/) const { return 0; }

  struct Budget {
    int rows;     // per KV head, on average over the layers
    int n_least;  // rows that a head must keep, where it has them
    int n_most;   // rows per KV head of the layer that has most, at least `rows`
  };
  // The rows per KV head that each layer is meant to keep, in order: to `rows` [n_layers]. Their mean is the budget.
  // measured [n_layers]; empty where nothing is measured, or not yet.
  virtual void allocate(const Budget& budget, std::span<const double> measured,
                        std::span<double> rows) const = 0;
};

// The visible rows of one KV head.
struct HeadDemand {
  int n;
  int n_least;                    // rows that it must keep: at least the protected ones
  Protected keep_anyway;          // of the n rows
  std::span<const float> scores;  // [n]; empty for an allocator that does not compare them
  int ordinal = 0;                // of its layer, as in LayerView
};

// Whose rows make up for whose: what a head does not keep, another of the same group may.
enum class Sharing {
  kNone,   // every head has a budget of its own
  kLayer,  // the heads of a layer
  kAll,    // all heads of all layers
};

class HeadAllocator {
 public:
  virtual ~HeadAllocator() = default;

  virtual Sharing sharing() const = 0;

  struct Scratch {
    Division division;
    std::vector<uint32_t> pool;  // [n_rows of the group]
  };
  // The rows that each head of a group keeps (of a layer, or with kAll of all layers), n_rows in all: to n_keep [n_heads].
  // Every head has n_least … n rows, and sum of n_least <= n_rows <= sum of n.
  virtual void allocate(int64_t n_rows, std::span<const HeadDemand> heads, Scratch& scratch,
                        std::span<int> n_keep) const = 0;
};

}  // namespace winnow::policy
