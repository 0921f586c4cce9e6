// A whole forward pass by plain ggml operations: the model's graph functions around libllama's attention
// without flash attention. The second oracle, for weights that libllama cannot load (expanded ones).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace winnow::test {

// Logits of every token, [n_tokens, n_vocab], computed in pieces of `n_ubatch` tokens with an f32 cache.
std::vector<float> ggml_attention_logits(const model::Model& model, std::span<const int32_t> tokens,
                                         int n_ubatch, int n_threads);

}  // namespace winnow::test
