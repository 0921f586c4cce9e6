#include "engine/sampling.h"

#include <cmath>
#include <random>

#include "base/error.h"
#include "llama.h"

namespace winnow::engine {
namespace {

uint32_t resolve_seed(int64_t seed) {
  return seed < 0 ? std::random_device{}() : static_cast<uint32_t>(seed);
}

model::Token likeliest(std::span<const float> logits) {
  size_t best = logits.size();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i]) && (best == logits.size() || logits[i] > logits[best])) {
      best = i;
    }
  }
  if (best == logits.size()) {
    throw Error(ErrorCode::kBadData, "the model's logits are not numbers");
  }
  return static_cast<model::Token>(best);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options) : seed_(resolve_seed(options.seed)) {
  if (options.temperature == 0.0F) {
    return;
  }
  chain_ = llama_sampler_chain_init(llama_sampler_chain_default_params());
  llama_sampler_chain_add(chain_, llama_sampler_init_top_k(options.top_k));
  llama_sampler_chain_add(chain_, llama_sampler_init_top_p(options.top_p, 1));
  llama_sampler_chain_add(chain_, llama_sampler_init_min_p(options.min_p, 1));
  llama_sampler_chain_add(chain_, llama_sampler_init_temp(options.temperature));
  llama_sampler_chain_add(chain_, llama_sampler_init_dist(seed_));
}

Sampler::~Sampler() {
  if (chain_ != nullptr) {
    llama_sampler_free(chain_);
  }
}

model::Token Sampler::sample(std::span<const float> logits) {
  const model::Token best = likeliest(logits);
  if (chain_ == nullptr) {
    return best;
  }
  std::vector<llama_token_data> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) {
      candidates.push_back({.id = static_cast<llama_token>(i), .logit = logits[i], .p = 0.0F});
    }
  }
  llama_token_data_array array{
      .data = candidates.data(), .size = candidates.size(), .selected = -1, .sorted = false};
  llama_sampler_apply(chain_, &array);
  const model::Token token =
      array.selected < 0 ? best : array.data[static_cast<size_t>(array.selected)].id;
  llama_sampler_accept(chain_, token);
  return token;
}

}  // namespace winnow::engine
