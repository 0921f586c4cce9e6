// think: of the rows that stay, keys lose the channels that the last queries get least from.
//
// Source    ThinK: Xu et al., ICLR 2025, arXiv 2407.21018
// Channels  s(c) = mean of q(h, t, c)^2 over h and t · mean of k(j, c)^2 over j                     (1)
//           The floor(think_channels · d) channels of least s are 0 in all rows j but the newest think_recent
// Symbols   h = query heads of the KV head, t = the last think_queries queries, j = row that stays, c = channel of d
// Needs     keys; the last think_queries queries after rotation
// Cost      the keys of all rows that stay, at each eviction
// Differs   the authors store the other channels alone. Here rows keep their length, so this saves no bytes: it says what the
//           method would cost (docs/experiments/evaluation.md has what the same bytes do in rows). They choose once, when the
//           prompt has been read; here whenever rows go, and channels that are 0 already come first by (1). With
//           think_recent=0 it is kvpress's ThinKPress

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/row_kernels.h"
#include "policy/mergers.h"

namespace winnow::policy {
namespace {

struct ThinkOptions {
  float think_channels = 0.4F;
  int think_queries = 32;
  int think_recent = 32;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(think_channels, "think_channels", 0.0F, 1.0F, "the share of a key's channels that become 0");
    v(think_queries, "think_queries", 1, 4096, "how many of the last queries are asked");
    v(think_recent, "think_recent", 0, 1 << 20, "the newest rows, whose keys stay whole");
  }
};

class Think final : public Merger {
 public:
  explicit Think(const ThinkOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = options_.think_queries}; }
  bool changes_keys() const override { return true; }

  NewRows merge(const Parting& parting, Scratch& scratch) const override {
    const auto dim = static_cast<size_t>(parting.rows().head_dim);
    const std::span<const int> kept = parting.kept;
    const size_t n_whole = std::min(kept.size(), static_cast<size_t>(options_.think_recent));
    const std::span<int> rows = scratch.take<int>(kept.size() - n_whole);
    std::iota(rows.begin(), rows.end(), 0);
    const std::span<int> channels = scratch.take<int>(dim);
    std::iota(channels.begin(), channels.end(), 0);

    const Scratch::Frame frame(scratch);
    const std::span<double> of_queries = scratch.take_filled(dim, 0.0);
    const std::span<double> of_keys = scratch.take_filled(dim, 0.0);
    add_queries(parting, of_queries);
    add_keys(parting, of_keys, scratch);
    const std::span<double> worth = scratch.take<double>(dim);
    std::ranges::transform(of_queries, of_keys, worth.begin(), [](double queries, double keys) {
      const double product =
          queries * keys;  // of sums: how many rows a mean is of changes no order
      return std::isnan(product) ? std::numeric_limits<double>::infinity() : product;
    });
    std::ranges::stable_sort(channels, {}, [&](int c) { return worth[static_cast<size_t>(c)]; });
    const auto share = static_cast<double>(options_.think_channels);
    const auto n_silent = static_cast<size_t>(share * static_cast<double>(dim));
    return {.rows = rows, .silent_channels = channels.first(n_silent)};
  }

 private:
  void add_queries(const Parting& parting, std::span<double> squares) const {
    const kernels::QueryWindow& queries = *parting.layer.queries;
    const int layer = parting.layer.layer;
    const int group = parting.layer.attention.gqa_group_size();
    const int end = queries.end_pos(layer);
    const int begin = std::max(queries.begin_pos(layer), end - options_.think_queries);
    for (int head = parting.kv_head * group; head < (parting.kv_head + 1) * group; ++head) {
      for (int pos = begin; pos < end; ++pos) {
        add_squares({queries.query(layer, head, pos), squares.size()}, squares);
      }
    }
  }

  static void add_keys(const Parting& parting, std::span<double> squares, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    const std::span<float> key = scratch.take<float>(squares.size());
    for (const int slot : parting.kept) {
      kernels::read_rows(kernels::keys_of(parting.rows()), {&slot, 1}, key, scratch);
      add_squares(key, squares);
    }
  }

  static void add_squares(std::span<const float> row, std::span<double> squares) {
    for (size_t c = 0; c < squares.size(); ++c) {
      squares[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    }
  }

  ThinkOptions options_;
};

}  // namespace

std::unique_ptr<Merger> make_think(OptionReader& reader) {
  return std::make_unique<Think>(read_options<ThinkOptions>(reader));
}

}  // namespace winnow::policy
