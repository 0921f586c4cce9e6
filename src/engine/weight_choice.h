// Whether a prompt is worth expanded weights: decided from what was measured, the prompt's length and the memory there is
// (docs/decisions/measured-weights.md).
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "model/gguf_file.h"
#include "model/weight_speed.h"

namespace winnow::engine {

// A prompt, and the run it is part of.
struct PromptNeeds {
  int n_tokens = 0;
  size_t planned_bytes = 0;    // memory that the run takes besides
  size_t available_bytes = 0;  // and all that it may take
};

// What expanding to one type would bring and take.
struct WeightCandidate {
  model::WeightType type = model::WeightType::kBf16;
  model::WeightSpeed speed;
  size_t expanded_bytes = 0;
};

enum class WeightVerdict {
  kKeep,  // the file's weights are as good
  kMention,  // expanding would bring something, but not enough or at too high a price to be done unasked
  kExpand,
};

WeightVerdict judge(const WeightCandidate& candidate, const PromptNeeds& needs);

struct WeightChoice {
  model::WeightType type = model::WeightType::kFile;  // what the prompt is multiplied with
  size_t expanded_bytes = 0;                          // what that takes
  double expand_ms = 0;                               // predicted
  double speedup = 0;     // of the best expanded type over the file's; 0: not measured
  double measure_ms = 0;  // spent on measuring
  std::string advice;     // what a flag would bring, where that is worth mentioning; else empty
};

// Measures bf16, and f16 where bf16 does not do, with `measure`.
WeightChoice choose_weights(const PromptNeeds& needs,
                            const std::function<WeightCandidate(model::WeightType)>& measure);

// The same on the model's own matrices, in batches of up to n_batch tokens. Nothing is measured for prompts that are read
// in no time, or where not all of the layers' matrices are quantised.
WeightChoice choose_weights(const model::GgufFile& file, const PromptNeeds& needs, int n_batch,
                            int n_threads);

}  // namespace winnow::engine
