// From logits to a token, by libllama's samplers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

struct llama_sampler;

namespace winnow::engine {

struct SamplingOptions {
  float temperature = 0.8F;  // 0: always the likeliest token
  int top_k = 40;            // 0: all
  float top_p = 0.95F;
  float min_p = 0.05F;
  int64_t seed = -1;  // -1: a random one

  template <typename Visitor>
  void visit(Visitor& v) {
    v(temperature, "temp", 0.0F, 100.0F, "temperature; 0 always takes the likeliest token");
    v(top_k, "top-k", 0, 1 << 30, "consider the k likeliest tokens; 0: all");
    v(top_p, "top-p", 0.0F, 1.0F,
      "consider the likeliest tokens that make up this probability; 1: all");
    v(min_p, "min-p", 0.0F, 1.0F,
      "drop tokens less likely than this share of the likeliest; 0: none");
  }
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // logits [n_vocab]. Greedy takes the lowest id among equals. Throws bad_data when no logit is a number.
  model::Token sample(std::span<const float> logits);

  uint32_t seed() const { return seed_; }  // as resolved

 private:
  llama_sampler* chain_ = nullptr;  // null: greedy
  uint32_t seed_;
};

}  // namespace winnow::engine
