// A layer made of vectors, for tests of policies that need no cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "policy/policy.h"
#include "policy/scorer.h"

namespace winnow::policy {

// The rows of one KV head that a policy may look at.
struct TinyHead {
  std::vector<int32_t> positions;  // [n_cached], ascending
  std::vector<float> norms;        // [n_cached] squared key norms; empty: the cache keeps no scores
  std::vector<uint8_t> hidden;     // [n_cached]; empty: none is hidden

  // Rows at positions 0 … n-1 with the given squared key norms.
  static TinyHead with_norms(std::vector<float> norms) {
    TinyHead head{.positions = std::vector<int32_t>(norms.size()), .norms = {}, .hidden = {}};
    std::iota(head.positions.begin(), head.positions.end(), 0);
    head.norms = std::move(norms);
    return head;
  }
};

// Keys and values are NaN: no method so far needs them.
class TinyLayer {
 public:
  explicit TinyLayer(std::vector<TinyHead> heads, int layer = 0)
      : heads_(std::move(heads)), layer_(layer) {
    size_t n_most = 0;
    for (const TinyHead& head : heads_) {
      n_most = std::max(n_most, head.positions.size());
    }
    elements_.assign(n_most * kHeadDim, std::numeric_limits<float>::quiet_NaN());
    const std::byte* elements = std::as_bytes(std::span(elements_)).data();
    for (const TinyHead& head : heads_) {
      rows_.push_back(
          {.keys = elements,
           .values = elements,
           .positions = head.positions.data(),
           .scores = head.norms.empty() ? nullptr : head.norms.data(),
           .hidden = head.hidden.empty() ? nullptr : head.hidden.data(),
           .n = static_cast<int>(head.positions.size()),
           .n_hidden = static_cast<int>(std::count(head.hidden.begin(), head.hidden.end(), 1)),
           .head_dim = kHeadDim,
           .key_type = cache::RowType::kF32,
           .value_type = cache::RowType::kF32,
           .has_nonfinite_values = true});
    }
  }
  TinyLayer(const TinyLayer&) = delete;
  TinyLayer& operator=(const TinyLayer&) = delete;

  LayerView view() const { return {.layer = layer_, .heads = rows_}; }

  // What the policy keeps of this layer alone [n_kv_heads, n_kept*].
  KeptSlots kept_by(const Policy& policy, int n_threads = 1) const {
    kernels::ParallelFor parallel(n_threads);
    const LayerView layer = view();
    Choice choice;
    return policy.choose({&layer, 1}, parallel, choice) ? choice.kept : KeptSlots{};
  }

 private:
  static constexpr int kHeadDim = 4;

  std::vector<TinyHead> heads_;
  std::vector<float> elements_;  // [n_most, head_dim] of NaN
  std::vector<cache::HeadRows> rows_;
  int layer_;
};

}  // namespace winnow::policy
