// What a prompt and its answer will take, measured on the graphs that they need.

#include <algorithm>

#include "engine/device_runner.h"
#include "engine/engine.h"

namespace winnow::engine {

size_t Engine::gpu_bytes(const Workload& work, const cache::CacheShape& shape,
                         const policy::Needs& needs) {
  if (!device_) {
    return 0;
  }
  const bool is_layer_major = work.order == PrefillOrder::kLayerMajor;
  return device_->measure(work.n_prompt, is_layer_major) +
         DeviceRunner::rows_bytes(shape, is_layer_major) +
         device_->choosing_bytes(shape, needs, is_layer_major);
}

Engine::Footprint Engine::footprint(const Workload& work) {
  const int n_layers = model_.hyper().n_layers;
  const int rows =
      padded_rows(std::min(std::max(work.n_prompt, work.n_replayed), options_.n_batch));
  const int n_last = work.n_prompt % options_.n_batch;  // tokens of a last chunk that is not full
  const auto n_residual_rows =
      static_cast<size_t>(work.n_prompt / options_.n_batch) * static_cast<size_t>(rows) +
      static_cast<size_t>(n_last > 0 ? padded_rows(n_last) : 0);
  const bool is_layer_major = work.order == PrefillOrder::kLayerMajor;
  GraphShape shape{.first_layer = 0,
                   .n_layers = is_layer_major || work.is_legacy ? 1 : n_layers,
                   .n_tokens = rows,
                   .has_logits = false,
                   .compares_residual = work.is_compared,
                   .attends_chunks = work.has_chunks};
  if (work.n_replayed > 0) {
    shape.is_observed = true;
  }
  const bool has_whole_layers = !work.is_legacy || model_.hyper().has_windows();
  size_t layers = has_whole_layers ? graphs_.measure(shape) : 0;
  for (const LayerPart part : {LayerPart::kUpToAppend, LayerPart::kFromAttend}) {
    shape.part = part;
    layers = std::max(layers, work.is_legacy ? graphs_.measure(shape) : size_t{0});
  }
  const int n_output_rows = work.has_all_logits ? std::min(work.n_prompt, kOutputRows) : 1;
  const size_t output = graphs_.measure({.first_layer = n_layers,
                                         .n_layers = 0,
                                         .n_tokens = padded_rows(n_output_rows),
                                         .has_logits = true});
  const GraphShape decode{.first_layer = 0,
                          .n_layers = n_layers,
                          .n_tokens = 1,
                          .has_logits = true,
                          .attends_chunks = work.has_chunks};
  return {.graph_bytes =
              std::max({layers, output, work.n_decoded > 0 ? graphs_.measure(decode) : size_t{0}}),
          .scratch_bytes =
              (work.is_legacy ? end_aligned_.measure_scratch(work.n_rows) : 0) +
              step_.measure_scratch(
                  {.n_positions =
                       work.n_held + work.n_prompt + std::max(work.n_decoded, work.n_replayed),
                   .is_decoded = work.n_decoded > 0,
                   .n_mass_rows =
                       std::min(work.n_mass_rows, work.n_held + work.n_prompt + work.n_decoded),
                   .n_with_turns =
                       work.needs_turns ? std::clamp(work.n_prompt, 1, options_.n_batch) : 0,
                   .n_rows = work.n_rows,
                   .is_turned = work.is_contiguous,
                   .rotation_end = work.rotation_end,
                   .has_chunks = work.has_chunks}) +
              work.replay_bytes,
          .residual_bytes =
              is_layer_major
                  ? n_residual_rows * static_cast<size_t>(model_.hyper().n_embd) * sizeof(float)
                  : 0};
}

}  // namespace winnow::engine
