// Sequences and steps for engine tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace winnow::test {

// A sequence on `model` under a policy such as "knorm:budget=64"; "full" by default. Rows are f32 unless said.
engine::Sequence make_sequence(const model::Model& model, std::string_view policy = "full",
                               int max_rows = 8192, cache::RowType type = cache::RowType::kF32);

// All logits of a prompt, [n_tokens, n_vocab].
std::vector<float> feed_all(engine::Engine& engine, engine::Sequence& sequence,
                            std::span<const int32_t> tokens,
                            engine::PrefillOrder order = engine::PrefillOrder::kChunkMajor);

// Decodes `n` times, each time the token of the given list, and returns all logits.
std::vector<float> decode_all(engine::Engine& engine, engine::Sequence& sequence,
                              std::span<const int32_t> tokens);

// Tokens below n_vocab, the same for the same seed.
std::vector<int32_t> random_tokens(int n, int n_vocab, uint32_t seed = 1);

// The kept positions [layer][kv_head][slot].
std::vector<std::vector<int>> kept_positions(const cache::Cache& cache);

// The first n tokens of a long English text (a licence), from its start again where it is too short.
std::vector<int32_t> prose_tokens(const model::Model& model, int n);

// Mean Kullback-Leibler divergence in nats of b from a, both [n, n_vocab] logits.
double mean_kl(std::span<const float> a, std::span<const float> b, size_t n_vocab);

bool same_bits(std::span<const float> a, std::span<const float> b);

}  // namespace winnow::test
