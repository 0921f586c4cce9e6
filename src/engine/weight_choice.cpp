#include "engine/weight_choice.h"

#include <algorithm>

#include "base/memory.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/feed.h"

namespace winnow::engine {
namespace {

// So large that noise does not decide: quantised types are either about as fast as bf16 or far slower.
constexpr double kLargeSpeedup = 1.5;
// How much sooner a prompt has to be read, expanding included, to be worth memory or a word.
constexpr double kFeltGain = 1.15;
// The share of the available memory that a run with expanded weights may take. The file's pages stay beside them.
constexpr double kComfortableShare = 0.5;
constexpr int kShortPrompt = 64;  // shorter ones are read sooner than measured
constexpr int kMostMeasuredTokens = 512;

double gain(const WeightCandidate& candidate, const PromptNeeds& needs) {
  const model::WeightSpeed& speed = candidate.speed;
  const double expanded_ms = speed.expanded_ms * needs.n_tokens + speed.expand_ms;
  return expanded_ms > 0 ? speed.file_ms * needs.n_tokens / expanded_ms : 0;
}

bool fits(const WeightCandidate& candidate, const PromptNeeds& needs) {
  return static_cast<double>(candidate.expanded_bytes) + static_cast<double>(needs.planned_bytes) <=
         kComfortableShare * static_cast<double>(needs.available_bytes);
}

std::string advice(const WeightCandidate& candidate, const PromptNeeds& needs) {
  const std::string option =
      model::weight_option_name({.type = candidate.type, .is_for_prompts = true});
  return "--weights " + option + " would read prompts like this one about " +
         rounded_text(gain(candidate, needs), 1) + " times as fast, and take " +
         format_bytes(candidate.expanded_bytes) + " of the " + format_bytes(needs.available_bytes) +
         " available";
}

bool are_layers_quantized(const model::GgufFile& file) {
  const auto matrices =
      model::matrices_to_expand(file, {.type = model::WeightType::kBf16, .is_for_prompts = true});
  return !matrices.empty() &&
         std::all_of(matrices.begin(), matrices.end(),
                     [](const ggml_tensor* matrix) { return ggml_is_quantized(matrix->type); });
}

}  // namespace

WeightVerdict judge(const WeightCandidate& candidate, const PromptNeeds& needs) {
  if (!(gain(candidate, needs) >= kFeltGain)) {
    return WeightVerdict::kKeep;
  }
  return candidate.speed.speedup() >= kLargeSpeedup && fits(candidate, needs)
             ? WeightVerdict::kExpand
             : WeightVerdict::kMention;
}

WeightChoice choose_weights(const PromptNeeds& needs,
                            const std::function<WeightCandidate(model::WeightType)>& measure) {
  WeightCandidate best = measure(model::WeightType::kBf16);
  if (best.speed.speedup() < kLargeSpeedup) {
    const WeightCandidate other = measure(model::WeightType::kF16);
    if (other.speed.speedup() > best.speed.speedup()) {
      best = other;
    }
  }
  WeightChoice choice;
  choice.speedup = best.speed.speedup();
  switch (judge(best, needs)) {
    case WeightVerdict::kKeep:
      break;
    case WeightVerdict::kMention:
      choice.advice = advice(best, needs);
      break;
    case WeightVerdict::kExpand:
      choice.type = best.type;
      choice.expanded_bytes = best.expanded_bytes;
      choice.expand_ms = best.speed.expand_ms;
      break;
  }
  return choice;
}

WeightChoice choose_weights(const model::GgufFile& file, const PromptNeeds& needs, int n_batch,
                            int n_threads) {
  if (needs.n_tokens < kShortPrompt || !are_layers_quantized(file)) {
    return {};
  }
  const Stopwatch stopwatch;
  const int n_tokens = padded_rows(std::min({needs.n_tokens, n_batch, kMostMeasuredTokens}));
  WeightChoice choice = choose_weights(needs, [&](model::WeightType type) {
    return WeightCandidate{
        .type = type,
        .speed = model::measure_weight_speed(file, type, n_tokens, n_threads),
        .expanded_bytes = model::expansion_bytes(file, {.type = type, .is_for_prompts = true})};
  });
  choice.measure_ms = stopwatch.ms();
  return choice;
}

}  // namespace winnow::engine
