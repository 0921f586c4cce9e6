// blockwise: choose as if rows had come block by block and been cut each time, though attention has seen all of them.
//
// Source    BlockPress of kvpress 0.5.4, with which it has KeyDiff (Park et al., 2025, arXiv 2504.15364) choose
// Rows      K(0) = the first n of a head's rows, n = its share                                                      (1)
//           K(i) = the n best of K(i - 1) and the next `block` rows, scored as if there were no others; until all have come (2)
// Symbols   rows that are kept anyway are: the first ones from the start, and of the last ones as many, of those that have come
// Needs     what the method needs
// Cost      scores a head's n + block rows once for each block of the rest
// Differs   what a method scores by beside rows (queries, their moments, column mass) is of the whole text. --evict per-chunk cuts
//           rows while the text is read, so that the later ones do not attend to them. Transforms before it are refused:
//           they would have no part

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/select.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

struct BlockwiseOptions {
  int block = 128;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(block, "block", 1, 1 << 20, "rows that come before the next cut");
  }
};

// A head of which some rows are out of sight.
class MaskedHead {
 public:
  // Of the n rows that are chosen among, none is seen; the others as before.
  MaskedHead(const ScoredHead& head, Scratch& scratch) : head_(head), layer_(*head.layer) {
    const cache::HeadRows& rows = head.rows();
    hidden_ = scratch.take_filled(static_cast<size_t>(rows.n), uint8_t{cache::kVisible});
    if (rows.hidden != nullptr) {
      std::copy_n(rows.hidden, hidden_.size(), hidden_.begin());
    }
    heads_ = scratch.take<cache::HeadRows>(layer_.heads.size());
    std::ranges::copy(layer_.heads, heads_.begin());
    layer_.heads = heads_;
    layer_.window = nullptr;  // is of all rows
    own().hidden = hidden_.data();
    for (size_t i = 0; i < head.scores.size(); ++i) {
      see(i, false);
    }
  }

  void see(size_t i, bool is_seen) {
    uint8_t& each = hidden_[static_cast<size_t>(head_.slot(i))];
    own().n_hidden += (is_seen ? 0 : 1) - (each == cache::kVisible ? 0 : 1);
    each = is_seen ? cache::kVisible : cache::kHidden;
  }

  // scores [n_cached]
  void score(Scratch& scratch, std::span<float> scores) const {
    head_.scorer->score(layer_, head_.kv_head, scratch, scores);
  }

 private:
  cache::HeadRows& own() { return heads_[static_cast<size_t>(head_.kv_head)]; }

  const ScoredHead& head_;
  LayerView layer_;
  std::span<uint8_t> hidden_;         // [n_cached]
  std::span<cache::HeadRows> heads_;  // [n_kv_heads]
};

class Blockwise final : public SecondStage {
 public:
  explicit Blockwise(const BlockwiseOptions& options) : options_(options) {}

  bool asks_scorer() const override { return true; }

  // Rows that stay get +infinity, the others -infinity.
  int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
              std::span<float> rescored) const override {
    const Scratch::Frame frame(scratch);
    const ScoredHead& head = layer[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rescored.size() == head.scores.size() && head.scorer != nullptr);
    const size_t n = head.scores.size();
    const auto n_stay = static_cast<size_t>(n_keep);
    const size_t n_most = n_stay + static_cast<size_t>(options_.block);
    MaskedHead masked(head, scratch);
    const std::span<size_t> kept = scratch.take<size_t>(n_most);  // K, ascending
    const std::span<float> scores = scratch.take<float>(static_cast<size_t>(head.rows().n));
    const std::span<float> compared = scratch.take<float>(n_most);
    const std::span<int> best = scratch.take<int>(n_stay + kernels::kSelectSlack);
    size_t n_kept = 0;
    for (size_t n_come = 0; n_come < n;) {
      const size_t n_next = n_come == 0 ? n_stay : std::min(n, n_come + n_most - n_stay);
      for (; n_come < n_next; ++n_come) {  // Eq. (1) and those added in (2)
        masked.see(n_come, true);
        kept[n_kept++] = n_come;
      }
      if (n_kept == n_stay) {
        continue;
      }
      masked.score(scratch, scores);
      compare(head, kept.first(n_kept), scores, compared);
      kernels::select_highest(compared.first(n_kept), n_keep, 0, best, scratch);
      size_t from = 0;
      for (size_t i = 0; i < n_stay; ++i, ++from) {
        for (; from < static_cast<size_t>(best[i]); ++from) {
          masked.see(kept[from], false);
        }
        kept[i] = kept[from];
      }
      for (; from < n_kept; ++from) {
        masked.see(kept[from], false);
      }
      n_kept = n_stay;
    }
    std::ranges::fill(rescored, -std::numeric_limits<float>::infinity());
    for (const size_t i : kept.first(n_kept)) {
      rescored[i] = std::numeric_limits<float>::infinity();
    }
    return n_keep;
  }

 private:
  // The scores of rows that are there, with those that are kept anyway before all others.
  static void compare(const ScoredHead& head, std::span<const size_t> rows,
                      std::span<const float> scores, std::span<float> compared) {
    const auto n_first = static_cast<size_t>(head.keep_anyway.n_first);
    const auto n_last = static_cast<size_t>(head.keep_anyway.n_last);
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool is_kept_anyway = rows[i] < n_first || i + n_last >= rows.size();
      const float score = scores[static_cast<size_t>(head.slot(rows[i]))];
      compared[i] = is_kept_anyway ? std::numeric_limits<float>::infinity() : score;
    }
  }

  BlockwiseOptions options_;
};

}  // namespace

std::unique_ptr<SecondStage> make_blockwise(OptionReader& reader) {
  return std::make_unique<Blockwise>(read_options<BlockwiseOptions>(reader));
}

}  // namespace winnow::policy
