// chunkwise: every part of the text keeps the same share of its rows, the best of them.
//
// Source    ChunkPress of kvpress 0.5.4
// Chunks    positions c · chunkwise … (c + 1) · chunkwise - 1, of which a head has those rows that attention sees
// Rows      of the n rows that are not kept anyway and of which m may stay, chunk by chunk the best floor(m e / n) - floor(m b / n),
//           b and e = how many of the n lie before the chunk and before its end                                       (1)
// Needs     what the method needs
// Cost      selects once more
// Differs   kvpress keeps max(1, int(n_c · kept fraction)) of each chunk, which need not add up to the budget; (1) does, to the
//           row, and is never further than one row from a chunk's share. It has each chunk scored by itself, which is another score
//           where that depends on other rows

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/select.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

struct ChunkwiseOptions {
  int chunkwise = 1024;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(chunkwise, "chunkwise", 1, 1 << 20, "positions of a part that keeps its share");
  }
};

class Chunkwise final : public SecondStage {
 public:
  explicit Chunkwise(const ChunkwiseOptions& options) : options_(options) {}

  // Rows that stay get +infinity, the others -infinity.
  int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
              std::span<float> rescored) const override {
    const Scratch::Frame frame(scratch);
    const ScoredHead& head = layer[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rescored.size() == head.scores.size());
    std::ranges::fill(rescored, -std::numeric_limits<float>::infinity());
    const auto begin = static_cast<size_t>(head.keep_anyway.n_first);
    const size_t end = head.scores.size() - static_cast<size_t>(head.keep_anyway.n_last);
    const size_t n = end - begin;
    const size_t n_stay = static_cast<size_t>(n_keep) - (head.scores.size() - n);
    const std::span<int> best = scratch.take<int>(n_stay + kernels::kSelectSlack);
    const auto chunk_of = [&](size_t i) {
      return head.rows().positions[head.slot(i)] / options_.chunkwise;
    };
    for (size_t first = begin; first < end;) {
      size_t last = first + 1;
      while (last < end && chunk_of(last) == chunk_of(first)) {
        ++last;
      }
      const size_t n_best = n_stay * (last - begin) / n - n_stay * (first - begin) / n;  // Eq. (1)
      if (n_best > 0) {
        kernels::select_highest(head.scores.subspan(first, last - first), static_cast<int>(n_best),
                                static_cast<int>(first), best, scratch);
        for (const int i : best.first(n_best)) {
          rescored[static_cast<size_t>(i)] = std::numeric_limits<float>::infinity();
        }
      }
      first = last;
    }
    return n_keep;
  }

 private:
  ChunkwiseOptions options_;
};

}  // namespace

std::unique_ptr<SecondStage> make_chunkwise(OptionReader& reader) {
  return std::make_unique<Chunkwise>(read_options<ChunkwiseOptions>(reader));
}

}  // namespace winnow::policy
