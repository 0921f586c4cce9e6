// All arms on one window of text, on one engine.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "eval/experiment.h"
#include "kernels/parallel.h"

namespace winnow::eval {

class TextRun {
 public:
  // For sequences of up to n_positions, and n_replayed more while a replay is under way. What `needs` names is kept of the
  // text. All but the needs outlive it.
  TextRun(const model::Model& model, const ModelSettings& settings, int n_positions,
          const policy::Needs& needs, const std::atomic<bool>* cancel, int n_replayed = 0);

  // Reads the text that all arms begin with, with the full cache; returns the last logits [n_vocab]. The observer (may be null)
  // is shown what attention takes.
  std::vector<float> read(std::span<const model::Token> context,
                          kernels::ActivationObserver* observer = nullptr);
  // What policies see of what was read.
  std::span<const policy::LayerView> view() { return engine_.view(base_); }
  // A copy of what was read, cut to the arm's policy, or what an arm in legacy order has read by itself; where nothing was
  // read, an empty sequence under the policy. A budget in percent refers to n_document tokens. Throws invalid_argument where
  // the budget does not work out, for legacy order where it is not possible, and for that and replays where nothing was read.
  engine::Sequence arm(const Arm& arm, int n_document);

  // Feeds tokens to an arm without cutting it; returns all logits [n_tokens, n_vocab].
  std::vector<float> feed(engine::Sequence& sequence, std::span<const model::Token> tokens);
  // One generated token for each of different sequences, which are then cut where their policies say so; sets logits
  // [n_inputs, n_vocab].
  void step(std::span<const engine::StepInput> inputs, std::vector<float>& logits);

  std::span<const float> row(const std::vector<float>& logits, size_t i) const;
  kernels::ParallelFor& parallel() { return parallel_; }

 private:
  engine::ReplayText replay() const;
  engine::Sequence empty_sequence(policy::Policy policy);
  std::vector<float> feed(engine::Sequence& sequence, std::span<const model::Token> tokens,
                          engine::WantedLogits wanted, engine::PromptEviction eviction,
                          kernels::ActivationObserver* observer = nullptr);

  const model::Model& model_;
  const ModelSettings& settings_;
  int n_positions_;
  const std::atomic<bool>* cancel_;
  engine::Engine engine_;
  kernels::ParallelFor parallel_;
  engine::Sequence base_;
  std::vector<model::Token> context_;  // what it has read
};

}  // namespace winnow::eval
