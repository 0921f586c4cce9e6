// libllama as the oracle: logits of the same file by its graphs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ggml.h"
#include "model/rope.h"

namespace winnow::test {

struct LibllamaOptions {
  bool flash_attention = false;
  int n_ubatch = 512;
  int n_threads = 1;
  ggml_type kv_type = GGML_TYPE_F32;
  model::RopeOptions rope = {};
};

// Logits of every token, [n_tokens, n_vocab]. Weights are not repacked.
std::vector<float> libllama_logits(const std::string& path, std::span<const int32_t> tokens,
                                   const LibllamaOptions& options = {});

}  // namespace winnow::test
