// keydiff: keep the rows whose keys point elsewhere than the mean key does.
//
// Source    Park, Jones, Morse, Goel, Lee, Lott, NeurIPS 2025, arXiv 2504.15364; kvpress where the paper is silent
// Score     u(h, i) = k(h, i) / ||k(h, i)||                                         (1)
//           a(h)    = mean of u(h, j) over the visible rows j of the head           (2)
//           s(h, i) = -cos(k(h, i), a(h))                                           (3)
// Symbols   h = KV head, i and j = slots, k = key after rotation, a = anchor, ||k||^2 = HeadRows::scores
// Needs     keys, and their squared norms written at append; no values, queries or attention weights
// Cost      reads each visible key twice; 4 bytes a row; scratch of 12 bytes a row and head_dim floats
// Differs   nothing in the score of finite keys. A key of norm 0 scores 0; a key whose squared norm is not finite
//           has no part in the anchor and is worth least. The paper cuts after every block of 128 prompt tokens, which
//           is --evict per-chunk -b 128

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

float squared_norm(std::span<const float> vector) {
  return static_cast<float>(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0));
}

// As kernels::row_dots(), from the last rows to the first: what has been read last is still near.
void dots_backwards(const kernels::RowVectors& rows, std::span<const int> slots,
                    std::span<const float> vector, Scratch& scratch, std::span<float> dots) {
  constexpr size_t kBlockRows = 256;
  for (size_t end = slots.size(); end > 0;) {
    const size_t first = (end - 1) / kBlockRows * kBlockRows;
    kernels::row_dots(rows, slots.subspan(first, end - first), vector,
                      dots.subspan(first, end - first), scratch);
    end = first;
  }
}

class KeyDiff final : public Scorer {
 public:
  Needs needs() const override { return {.keys = true, .key_norms = true}; }

  // rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rows.scores != nullptr && std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const kernels::RowVectors keys = kernels::keys_of(rows);

    const std::span<float> inverse_norms = scratch.take<float>(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      inverse_norms[i] = rows.scores[slots[i]];
    }
    kernels::inverse_norms(inverse_norms);
    const std::span<float> anchor = scratch.take<float>(static_cast<size_t>(rows.head_dim));
    kernels::weighted_sum(keys, slots, inverse_norms, anchor, scratch);  // Eq. (1), (2) times n
    float inverse_anchor_norm = squared_norm(anchor);
    kernels::inverse_norms({&inverse_anchor_norm, 1});

    const std::span<float> dots = scratch.take<float>(slots.size());
    dots_backwards(keys, slots, anchor, scratch, dots);
    std::fill(scores.begin(), scores.end(), kNan);
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto slot = static_cast<size_t>(slots[i]);
      if (std::isfinite(rows.scores[slot])) {
        scores[slot] = -(dots[i] * inverse_norms[i] * inverse_anchor_norm);  // Eq. (3)
      }
    }
  }
};

}  // namespace

std::unique_ptr<Scorer> make_keydiff(OptionReader& /*reader*/) {
  return std::make_unique<KeyDiff>();
}

}  // namespace winnow::policy
