// How well filters predict attention: what `guard=weak` goes by.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "policy/filters.h"

namespace winnow::calibrate {

// Spearman's correlation between keys' projections on the filters and the mean attention that they receive while the tokens are
// read: [n_layers, n_kv_heads], NaN where the filters cancel, and in layers with a window. Throws what
// Engine::feed throws.
std::vector<float> attention_correlation(engine::Engine& engine, const model::Model& model,
                                         const policy::Filters& filters,
                                         std::span<const model::Token> tokens,
                                         const std::atomic<bool>* cancel);

}  // namespace winnow::calibrate
