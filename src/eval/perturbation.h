// How far eviction moves attention's output, where it is known what matters; without a model.
#pragma once

#include "eval/experiment.h"
#include "eval/planted_rows.h"

namespace winnow::eval {

// A sample is one head of n_tokens planted rows (eval/planted_rows.h); sample 0 of seed 0 is the published one of its length.
// Each policy cuts the rows as it would a prompt's. Keys stand in for the queries that rows had while they were read, as in
// the published comparison. `perturbation` is 0 where nothing changes.
class Perturbation : public Experiment {
 public:
  // The settings outlive it; of them, row types and threads matter.
  Perturbation(const ModelSettings& settings, Geometry geometry)
      : settings_(settings), geometry_(geometry) {}

  void measure(const SampleId& sample, std::span<const Arm> arms,
               const std::function<void(Record)>& done, const std::atomic<bool>* cancel) override;

 private:
  Record measure(const SampleId& sample, const Arm& arm) const;

  const ModelSettings& settings_;
  Geometry geometry_;
};

}  // namespace winnow::eval
