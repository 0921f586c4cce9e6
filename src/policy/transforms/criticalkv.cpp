// criticalkv: part of the rows by their scores, the others also by how much their values do to the output.
//
// Source    Feng et al., 2025, arXiv 2502.03805; as in kvpress 0.5.4
// Rows      floor(first_stage · n) of a head's n rows: those with the best scores s                   (1)
//           the others: those with the best (s(j) + 1e-4) · mean over h of ||W_h v(j)||_1             (2)
// Symbols   j = row; h = query heads of the KV head; W_h = the columns of the output projection that multiply h's output;
//           v(j) = the row's value. Rows that are kept anyway count in (1)
// Needs     scores that are not negative, values, the output projection
// Cost      once for each row, and each query head of the group: a product with an n_embd × head_dim matrix, noted beside
//           the row; 4 bytes a row. While decoding, once for the rows of some n_recent tokens
// Differs   with adakv, allocators compare s alone and (1), (2) fill each head's share, as kvpress' CriticalAdaKV does

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/output_norms.h"
#include "kernels/select.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

struct CriticalkvOptions {
  float first_stage = 0.5F;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(first_stage, "first_stage", 0.0F, 1.0F,
      "the share of a head's rows that scores alone decide");
  }
};

// norms[i] = mean over the query heads h of a KV head of ||W_h v||_1, v = the value in slots[i].
void compute_norms(const LayerView& layer, int kv_head, std::span<const int> slots,
                   Scratch& scratch, std::span<float> norms) {
  constexpr size_t kBlockRows = 480;
  constexpr int kPartOutputs = 16;
  static_assert(kBlockRows % kernels::kNormRows == 0 && kPartOutputs % kernels::kNormOutputs == 0);
  const Scratch::Frame frame(scratch);
  const int head_dim = layer.attention.head_dim;
  const int group_size = layer.attention.gqa_group_size();
  const int n_columns = group_size * head_dim;  // of the matrix
  const auto stride = static_cast<size_t>(n_columns);
  const kernels::RowVectors values = kernels::values_of(layer.heads[static_cast<size_t>(kv_head)]);
  const std::span<float> matrix = scratch.take<float>(kPartOutputs * stride);
  const std::span<float> columns = scratch.take<float>(kBlockRows * static_cast<size_t>(head_dim));
  const std::span<double> sums = scratch.take<double>(kBlockRows);

  for (size_t first = 0; first < slots.size(); first += kBlockRows) {
    const size_t n = std::min(kBlockRows, slots.size() - first);
    const size_t n_padded = (n + kernels::kNormRows - 1) / kernels::kNormRows * kernels::kNormRows;
    const std::span<float> block = columns.first(n_padded * static_cast<size_t>(head_dim));
    kernels::rows_to_columns(values, slots.subspan(first, n), block, n_padded, scratch);
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int row = 0; row < layer.output_weights->n_embd(); row += kPartOutputs) {
      const int n_rows = std::min(kPartOutputs, layer.output_weights->n_embd() - row);
      layer.output_weights->read(layer.layer,
                                 {.first_row = row,
                                  .n_rows = n_rows,
                                  .first_column = kv_head * n_columns,
                                  .n_columns = n_columns},
                                 matrix.data());
      const auto n_read = static_cast<size_t>(n_rows) * stride;
      std::fill(matrix.begin() + static_cast<std::ptrdiff_t>(n_read), matrix.end(), 0.0F);
      for (int head = 0; head < group_size; ++head) {
        kernels::add_output_norms(matrix.data() + static_cast<std::ptrdiff_t>(head) * head_dim,
                                  kPartOutputs, stride, head_dim, block, sums.first(n_padded));
      }
    }
    for (size_t i = 0; i < n; ++i) {
      norms[first + i] = static_cast<float>(sums[i] / group_size);
    }
  }
}

// The same, from what the cache has noted. Where a row's norm is not known yet, those of all others that are not are noted
// too, the latest rows among them: reading the matrix takes longer than multiplying with it.
void output_norms(const LayerView& layer, int kv_head, std::span<const int> slots, Scratch& scratch,
                  std::span<float> norms) {
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  if (rows.output_norms == nullptr) {
    compute_norms(layer, kv_head, slots, scratch, norms);
    return;
  }
  const auto is_unknown = [&](int slot) { return rows.output_norms[slot] == cache::kUnknownNorm; };
  if (std::ranges::any_of(slots, is_unknown)) {
    const Scratch::Frame frame(scratch);
    const std::span<const int> visible =
        cache::visible_slots(rows, scratch.take<int>(static_cast<size_t>(rows.n)));
    const std::span<int> unknown = scratch.take<int>(visible.size());
    const auto end = std::ranges::copy_if(visible, unknown.begin(), is_unknown).out;
    const auto n_unknown = static_cast<size_t>(end - unknown.begin());
    const std::span<float> found = scratch.take<float>(n_unknown);
    compute_norms(layer, kv_head, unknown.first(n_unknown), scratch, found);
    for (size_t i = 0; i < n_unknown; ++i) {
      rows.output_norms[unknown[i]] = found[i];
    }
  }
  std::ranges::transform(slots, norms.begin(), [&](int slot) { return rows.output_norms[slot]; });
}

class Criticalkv final : public SecondStage {
 public:
  explicit Criticalkv(const CriticalkvOptions& options) : options_(options) {}

  Needs needs() const override { return {.values = true, .output_weights = true}; }
  bool needs_non_negative_scores() const override { return true; }

  // values [n_cached, head_dim], W_O [n_embd, n_heads * head_dim]; rows of the first stage get +infinity.
  int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
              std::span<float> rescored) const override {
    const Scratch::Frame frame(scratch);
    const ScoredHead& head = layer[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rescored.size() == head.scores.size() && head.layer->output_weights != nullptr);
    const auto [n_first, n_last] = head.keep_anyway;
    std::ranges::copy(head.scores, rescored.begin());
    const int n_compared = static_cast<int>(head.scores.size()) - n_first - n_last;
    const std::span<float> compared =
        rescored.subspan(static_cast<size_t>(n_first), static_cast<size_t>(n_compared));
    const int n_best = std::clamp(
        static_cast<int>(static_cast<double>(options_.first_stage) * n_keep) - n_first - n_last, 0,
        n_compared);
    if (n_best > 0) {  // Eq. (1)
      const std::span<int> best =
          scratch.take<int>(static_cast<size_t>(n_best) + kernels::kSelectSlack);
      kernels::select_highest(compared, n_best, 0, best, scratch);
      for (const int i : best.first(static_cast<size_t>(n_best))) {
        compared[static_cast<size_t>(i)] = std::numeric_limits<float>::infinity();
      }
    }
    const std::span<int> slots = scratch.take<int>(compared.size());
    size_t n_others = 0;
    for (size_t i = 0; i < compared.size(); ++i) {
      if (std::isfinite(compared[i])) {
        slots[n_others++] = head.slot(static_cast<size_t>(n_first) + i);
      }
    }
    const std::span<float> norms = scratch.take<float>(n_others);
    output_norms(*head.layer, head.kv_head, slots.first(n_others), scratch, norms);
    const float* norm = norms.data();
    for (float& score : compared) {
      score = std::isfinite(score) ? (score + kLeast) * *norm++ : score;  // Eq. (2)
    }
    return n_keep;
  }

 private:
  static constexpr float kLeast = 1e-4F;  // rows of no score are compared by their values

  CriticalkvOptions options_;
};

}  // namespace

std::unique_ptr<SecondStage> make_criticalkv(OptionReader& reader) {
  return std::make_unique<Criticalkv>(read_options<CriticalkvOptions>(reader));
}

}  // namespace winnow::policy
