// chunkkv: keep whole chunks of neighbouring rows, so that what belongs together stays together.
//
// Source    Liu et al., 2025, arXiv 2502.00299; as in kvpress 0.5.4
// Chunks    positions c · chunk … (c + 1) · chunk - 1, of which a head has those rows that attention sees; a last chunk
//           that is not full is one like the others
// Score     S(c) = mean of s(j) over the head's rows j of chunk c                                     (1)
//           shared_chunks: the sum of (1) over the KV heads of the layer that have rows of it         (2)
// Rows      the chunks with the highest S, until the head's share is used up; of the last one, which does not fit, the
//           best rows                                                                                 (3)
// Symbols   s = the score of a row. A row that is kept anyway counts in (1), and inside the share in (3)
// Cost      reads the head's scores twice; shared_chunks: those of all heads of the layer
// Differs   kvpress has shared chunks, and keeps max(1, int(n_chunks · kept fraction)) whole ones, however many rows those
//           have: shared_chunks=true,whole_chunks=true. Here no head ever keeps more than its share. Chunks lie at fixed
//           positions, so that later evictions find the same ones

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "policy/order.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

struct ChunkkvOptions {
  int chunk = 20;
  bool shared_chunks = false;
  bool whole_chunks = false;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(chunk, "chunk", 1, 1 << 16, "positions in a chunk");
    v(shared_chunks, "shared_chunks",
      "chunks are compared by the scores of all KV heads of a layer");
    v(whole_chunks, "whole_chunks", "keep fewer rows rather than a part of a chunk");
  }
};

// Rows [first, end) of a head.
struct Chunk {
  int number;  // position / chunk
  size_t first;
  size_t end;
  float worth;
};

// Eq. (1), without the scores that are not numbers; NaN where none is.
float mean_of_numbers(std::span<const float> scores) {
  double sum = 0;
  double n = 0;
  for (const float score : scores) {
    if (!std::isnan(score)) {
      sum += static_cast<double>(score);
      n += 1;
    }
  }
  return static_cast<float>(sum / n);
}

// The chunks that a head has rows of, in order, with S(c) of the head alone.
std::span<Chunk> chunks_of(const ScoredHead& head, int chunk, Scratch& scratch) {
  const std::span<Chunk> chunks = scratch.take<Chunk>(head.scores.size());
  const int32_t* const positions = head.rows().positions;
  size_t n = 0;
  for (size_t first = 0; first < head.scores.size(); ++n) {
    const int number = positions[head.slot(first)] / chunk;
    size_t end = first + 1;
    while (end < head.scores.size() && positions[head.slot(end)] / chunk == number) {
      ++end;
    }
    chunks[n] = {.number = number,
                 .first = first,
                 .end = end,
                 .worth = mean_of_numbers(head.scores.subspan(first, end - first))};
    first = end;
  }
  return chunks.first(n);
}

// Eq. (2). Sums go from the least to the greatest, so that the order of the heads plays no part.
void add_other_heads(std::span<const ScoredHead> layer, int chunk, std::span<Chunk> chunks,
                     Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::span<float> worths = scratch.take<float>(chunks.size() * layer.size());
  const std::span<size_t> n_heads = scratch.take_filled(chunks.size(), size_t{0});
  for (const ScoredHead& head : layer) {
    const Scratch::Frame frame_of_head(scratch);
    size_t i = 0;
    for (const Chunk& other : chunks_of(head, chunk, scratch)) {
      while (i < chunks.size() && chunks[i].number < other.number) {
        ++i;
      }
      if (i < chunks.size() && chunks[i].number == other.number && !std::isnan(other.worth)) {
        worths[i * layer.size() + n_heads[i]++] = other.worth;
      }
    }
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::span<float> of_chunk = worths.subspan(i * layer.size(), n_heads[i]);
    std::ranges::sort(of_chunk);
    double sum = of_chunk.empty() ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    for (const float worth : of_chunk) {
      sum += static_cast<double>(worth);
    }
    chunks[i].worth = static_cast<float>(sum);
  }
}

class Chunkkv final : public SecondStage {
 public:
  explicit Chunkkv(const ChunkkvOptions& options) : options_(options) {}

  bool looks_at_layer() const override { return options_.shared_chunks; }

  // Rows that stay get +infinity, the others -infinity or NaN, as they had.
  int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
              std::span<float> rescored) const override {
    const Scratch::Frame frame(scratch);
    const ScoredHead& head = layer[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rescored.size() == head.scores.size());
    for (size_t i = 0; i < rescored.size(); ++i) {
      rescored[i] = std::isnan(head.scores[i]) ? head.scores[i] : -kInfinity;
    }
    const std::span<Chunk> chunks = chunks_of(head, options_.chunk, scratch);
    if (options_.shared_chunks) {
      add_other_heads(layer, options_.chunk, chunks, scratch);
    }
    std::ranges::sort(chunks, [](const Chunk& a, const Chunk& b) {
      const uint32_t worth_a = ordered(a.worth);
      const uint32_t worth_b = ordered(b.worth);
      return worth_a != worth_b ? worth_a > worth_b : a.number < b.number;
    });

    const auto [n_first, n_last] = head.keep_anyway;
    const auto first = static_cast<size_t>(n_first);
    const size_t end = head.scores.size() - static_cast<size_t>(n_last);
    const auto n_free = static_cast<size_t>(n_keep - n_first - n_last);
    size_t n_taken = 0;
    for (const Chunk& chunk : chunks.first(n_chunks_to_keep(chunks.size(), n_keep, head))) {
      const size_t begin = std::max(chunk.first, first);
      const size_t n_rows = std::max(std::min(chunk.end, end), begin) - begin;
      n_taken += take_best(head, begin, n_rows, n_free - n_taken, scratch, rescored);  // Eq. (3)
      if (n_taken == n_free) {
        break;
      }
    }
    return n_first + n_last + static_cast<int>(n_taken);
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  size_t n_chunks_to_keep(size_t n_chunks, int n_keep, const ScoredHead& head) const {
    if (!options_.whole_chunks) {
      return n_chunks;
    }
    const double kept_fraction =
        static_cast<double>(n_keep) / static_cast<double>(head.scores.size());
    return std::max<size_t>(1, static_cast<size_t>(static_cast<double>(n_chunks) * kept_fraction));
  }

  // Marks the best of rows [begin, begin + n_rows), at most n_most, and returns how many.
  static size_t take_best(const ScoredHead& head, size_t begin, size_t n_rows, size_t n_most,
                          Scratch& scratch, std::span<float> rescored) {
    if (n_rows <= n_most) {
      std::fill_n(rescored.begin() + static_cast<std::ptrdiff_t>(begin), n_rows, kInfinity);
      return n_rows;
    }
    const Scratch::Frame frame(scratch);
    const std::span<size_t> order = scratch.take<size_t>(n_rows);
    for (size_t i = 0; i < n_rows; ++i) {
      order[i] = begin + i;
    }
    std::ranges::sort(order, [&](size_t a, size_t b) {
      const uint32_t score_a = ordered(head.scores[a]);
      const uint32_t score_b = ordered(head.scores[b]);
      return score_a != score_b ? score_a > score_b : a < b;
    });
    for (const size_t i : order.first(n_most)) {
      rescored[i] = kInfinity;
    }
    return n_most;
  }

  ChunkkvOptions options_;
};

}  // namespace

std::unique_ptr<SecondStage> make_chunkkv(OptionReader& reader) {
  return std::make_unique<Chunkkv>(read_options<ChunkkvOptions>(reader));
}

}  // namespace winnow::policy
