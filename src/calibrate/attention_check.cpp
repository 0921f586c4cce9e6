#include "calibrate/attention_check.h"

#include <limits>

#include "eval/rank_correlation.h"
#include "eval/received_attention.h"
#include "kernels/parallel.h"

namespace winnow::calibrate {

std::vector<float> attention_correlation(engine::Engine& engine, const model::Model& model,
                                         const policy::Filters& filters,
                                         std::span<const model::Token> tokens,
                                         const std::atomic<bool>* cancel) {
  const model::Hyperparameters& hyper = model.hyper();
  policy::Policy full = policy::Policy::full({.column_mass = true});
  engine::Sequence sequence(engine::cache_shape(hyper, cache::RowType::kF16, cache::RowType::kF16,
                                                full, static_cast<int>(tokens.size())),
                            std::move(full));
  const engine::Feed feed{
      .sequence = &sequence, .tokens = tokens, .logits = engine::WantedLogits::kNone};
  engine.feed({&feed, 1}, {.progress = {}, .cancel = cancel});

  const kernels::ScoreDirections directions = policy::score_directions(filters, filters.is_guarded);
  std::vector<float> correlation(filters.is_guarded.size(),
                                 std::numeric_limits<float>::quiet_NaN());
  Scratch scratch;
  const std::span<const policy::LayerView> layers = engine.view(sequence);
  const auto n_kv_heads = static_cast<size_t>(hyper.n_kv_heads);
  for (const policy::LayerView& layer : layers) {
    for (int kv_head = 0; kv_head < hyper.n_kv_heads; ++kv_head) {
      if (directions.of(layer.layer, kv_head).empty()) {
        continue;
      }
      const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
      std::vector<float> scores(static_cast<size_t>(rows.n));
      kernels::project_keys(rows, directions, layer.layer, kv_head, layer.rotation, scratch,
                            scores);
      const std::vector<double> projections(scores.begin(), scores.end());
      correlation[static_cast<size_t>(layer.layer) * n_kv_heads + static_cast<size_t>(kv_head)] =
          static_cast<float>(
              eval::spearman(projections, eval::received_attention(layer, kv_head)).value_or(0));
    }
  }
  return correlation;
}

}  // namespace winnow::calibrate
