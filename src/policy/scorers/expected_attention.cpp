// expected-attention: keep the rows that later queries should attend to, if they are like the queries so far.
//
// Source    Devoto, Jeblick, Jégou, 2025, arXiv 2510.00636; as in kvpress 0.5.4
// Score     μ, Σ = mean and covariance of query head h before rotation                                        (1)
//           μ̄ = R μ, Σ̄ = R Σ Rᵀ, R = the mean rotation at the next n_future positions                        (2)
//           l_h(j) = c kⱼ·μ̄ + c²/2 kⱼᵀ Σ̄ kⱼ: the logarithm of E exp(c q·kⱼ) for normal q                   (3)
//           p_h = softmax of l_h over the visible rows but the sinks                                          (4)
//           s(j) = (mean of p_h(j) over the query heads h of the KV head + epsilon) ‖vⱼ‖                      (5)
//           The sinks come before all others.                                                                 (6)
// Symbols   j = row; c = what attention multiplies q·k with, 1/√head_dim in the paper
// Needs     moments of all queries but those of the first 4 positions, of this text or, with stats=FILE, of what was calibrated;
//           keys; values unless use_vnorm=false
// Cost      per query head n · head_dim² / 2 multiply-adds at each eviction, and about as many for each token that is
//           read, in double; 8 bytes for each element of half a matrix per query head
// Differs   generated tokens' queries count too; positions are the model's own, where kvpress counts the cached rows:
//           positions=contiguous does

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/filter_option.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct ExpectedAttentionFile {
  std::string stats;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(stats, "stats", "FILE",
      "mean and covariance of queries, by winnow calibrate --statistics, instead of the text's "
      "own");
  }
};

struct ExpectedAttentionOptions {
  std::string stats_digest;
  int n_future = 512;          // Eq. (2)
  float epsilon = 0.0F;        // Eq. (5)
  bool use_covariance = true;  // Eq. (3)
  bool use_vnorm = true;       // Eq. (5)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(stats_digest, "stats_digest", "16 hexadecimal digits",
      "of the file's content, filled in where it is not given; another content is refused");
    v(n_future, "n_future", 1, 1 << 20, "so many next positions are expected to ask");
    v(epsilon, "epsilon", 0.0F, 1.0F, "what every row is expected to get besides");
    v(use_covariance, "use_covariance", "queries are expected to vary as they did so far");
    v(use_vnorm, "use_vnorm", "multiply with the norms of the values");
  }
};

class ExpectedAttention final : public Scorer {
 public:
  // `calibrated` is null where the queries so far are meant.
  ExpectedAttention(std::shared_ptr<const Filters> calibrated,
                    const ExpectedAttentionOptions& options)
      : calibrated_(std::move(calibrated)), options_(options) {}

  Needs needs() const override {
    return {.keys = true, .values = options_.use_vnorm, .query_moments = calibrated_ == nullptr};
  }
  const Filters* filters() const override { return calibrated_.get(); }
  bool may_be_negative() const override { return false; }

  // rows.keys, rows.values [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const VisibleSlots visible = without_sinks(layer, kv_head, scratch);
    const std::span<const int> slots = visible.others;
    const std::span<double> turns = scratch.take<double>(layer.rotation->n_rot());
    kernels::mean_turns(*layer.rotation, layer.next_rotation, options_.n_future, turns);

    const std::span<float> worth = scratch.take_filled(slots.size(), 0.0F);
    const int group = layer.attention.gqa_group_size();
    for (int head = 0; head < group; ++head) {
      add_expected(layer, kv_head, kv_head * group + head, turns, slots, scratch, worth);
    }
    if (options_.use_vnorm) {  // Eq. (5)
      const std::span<float> norms = scratch.take<float>(slots.size());
      kernels::squared_norms(kernels::values_of(rows), slots, norms, scratch);
      for (size_t i = 0; i < slots.size(); ++i) {
        worth[i] = (worth[i] + options_.epsilon) * std::sqrt(norms[i]);
      }
    }
    score_visible(slots, worth, 1.0F, scores);
    score_sinks(visible, scores);  // Eq. (6)
  }

 private:
  // Adds one query head's share of Eq. (4) to worth.
  void add_expected(const LayerView& layer, int kv_head, int head, std::span<const double> turns,
                    std::span<const int> slots, Scratch& scratch, std::span<float> worth) const {
    const Scratch::Frame frame(scratch);
    const kernels::RowVectors keys = kernels::keys_of(layer.heads[static_cast<size_t>(kv_head)]);
    const auto dim = static_cast<size_t>(keys.head_dim);
    const auto scale = static_cast<double>(layer.attention.scale);
    const std::span<float> expected = scratch.take<float>(slots.size());
    const std::span<double> mean = scratch.take<double>(dim);
    const std::span<float> linear = scratch.take<float>(dim);
    if (calibrated_ == nullptr) {
      layer.moments->mean(layer.layer, head, mean);
    } else {
      std::ranges::copy(calibrated_->query_mean(layer.layer, head), mean.begin());
    }
    kernels::turn_strided(*layer.rotation, turns, mean.data(), 1);
    for (size_t a = 0; a < dim; ++a) {
      linear[a] = static_cast<float>(scale * mean[a]);
    }
    if (options_.use_covariance) {
      const std::span<const float> upper = expected_spread(layer, head, turns, scratch);
      kernels::quadratic_form(keys, slots, {.linear = linear, .upper = upper}, expected, scratch);
    } else {
      kernels::row_dots(keys, slots, linear, expected, scratch);
    }
    for (float& each : expected) {
      each = std::isfinite(each) ? each : std::numeric_limits<float>::quiet_NaN();
    }
    kernels::softmax(expected);
    const auto share = 1.0F / static_cast<float>(layer.attention.gqa_group_size());
    for (size_t i = 0; i < worth.size(); ++i) {
      worth[i] += share * expected[i];
    }
  }

  // c²/2 Σ̄ with what is below the diagonal added to what is above: [head_dim, head_dim].
  std::span<const float> expected_spread(const LayerView& layer, int head,
                                         std::span<const double> turns, Scratch& scratch) const {
    const auto dim = static_cast<size_t>(layer.attention.head_dim);
    const auto scale = static_cast<double>(layer.attention.scale);
    const std::span<double> covariance = scratch.take<double>(dim * dim);
    const std::span<float> upper = scratch.take_filled(dim * dim, 0.0F);
    if (calibrated_ == nullptr) {
      layer.moments->covariance(layer.layer, head, covariance);
    } else {
      std::ranges::copy(calibrated_->query_covariance(layer.layer, head), covariance.begin());
    }
    for (size_t row = 0; row < dim; ++row) {
      kernels::turn_strided(*layer.rotation, turns, covariance.data() + row * dim, 1);
    }
    for (size_t column = 0; column < dim; ++column) {
      kernels::turn_strided(*layer.rotation, turns, covariance.data() + column, dim);
    }
    for (size_t a = 0; a < dim; ++a) {
      for (size_t b = a; b < dim; ++b) {
        const double both =
            a == b ? covariance[a * dim + a] : covariance[a * dim + b] + covariance[b * dim + a];
        upper[a * dim + b] = static_cast<float>(scale * scale / 2 * both);
      }
    }
    return upper;
  }

  std::shared_ptr<const Filters> calibrated_;
  ExpectedAttentionOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_expected_attention(OptionReader& reader) {
  const std::string path = read_options<ExpectedAttentionFile>(reader).stats;
  FilterFile file;
  if (!path.empty()) {
    file = read_filter_file(reader, "stats", path);
  }
  const auto options = read_options<ExpectedAttentionOptions>(reader);
  if (path.empty() && !options.stats_digest.empty()) {
    reader.add_problem("stats_digest is of a file, and there is no stats=FILE");
  }
  check_digest(reader, "stats", path, file, options.stats_digest);
  if (file.filters != nullptr && !file.filters->has_query_moments()) {
    reader.add_problem("stats=" + path +
                       " has no mean and covariance of queries; winnow calibrate --statistics FILE "
                       "writes them");
    file.filters = nullptr;
  }
  return std::make_unique<ExpectedAttention>(std::move(file.filters), options);
}

}  // namespace winnow::policy
