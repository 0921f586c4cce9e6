// A model's output projections, as policies read them.
#pragma once

#include "model/model.h"
#include "policy/output_weights.h"

namespace winnow::engine {

// Brings to floats what is asked for, from the weights that generated tokens are multiplied with; keeps nothing.
class OutputProjection final : public policy::OutputWeights {
 public:
  explicit OutputProjection(const model::Model& model) : model_(model) {}

  int n_embd() const override { return model_.hyper().n_embd; }
  void read(int layer, const Part& part, float* to) const override;

 private:
  const model::Model& model_;  // outlives this
};

}  // namespace winnow::engine
