#include "eval/experiments.h"

#include <iterator>

#include "eval/anisotropy.h"
#include "eval/correlation.h"
#include "eval/drift.h"
#include "eval/evaluation.h"
#include "eval/perturbation.h"
#include "eval/ppl.h"

namespace winnow::eval {
namespace {

std::unique_ptr<Experiment> make_anisotropy(const ExperimentContext& context,
                                            bool is_before_rotation) {
  const EvaluationOptions& options = context.options;
  return std::make_unique<Anisotropy>(*context.model, options.model, context.texts,
                                      AnisotropyOptions{.n_windows = options.n,
                                                        .is_before_rotation = is_before_rotation,
                                                        .allow_looped = options.allow_looped});
}

}  // namespace

std::unique_ptr<Experiment> make_anisotropy(const ExperimentContext& context) {
  return make_anisotropy(context, /*is_before_rotation=*/false);
}

std::unique_ptr<Experiment> make_anisotropy_pre(const ExperimentContext& context) {
  return make_anisotropy(context, /*is_before_rotation=*/true);
}

std::unique_ptr<Experiment> make_correlation(const ExperimentContext& context) {
  const EvaluationOptions& options = context.options;
  return std::make_unique<Correlation>(
      *context.model, options.model, context.texts,
      CorrelationOptions{.n_windows = options.n, .allow_looped = options.allow_looped});
}

std::unique_ptr<Experiment> make_drift(const ExperimentContext& context) {
  const EvaluationOptions& options = context.options;
  return std::make_unique<Drift>(*context.model, options.model, context.texts,
                                 DriftOptions{.n_windows = options.n,
                                              .n_generated = options.n_generated,
                                              .allow_looped = options.allow_looped});
}

std::unique_ptr<Experiment> make_perturbation(const ExperimentContext& context) {
  return std::make_unique<Perturbation>(context.options.model, Geometry::kQFilters);
}

std::unique_ptr<Experiment> make_perturbation_isotropic(const ExperimentContext& context) {
  return std::make_unique<Perturbation>(context.options.model, Geometry::kIsotropic);
}

std::unique_ptr<Experiment> make_perturbation_knorm(const ExperimentContext& context) {
  return std::make_unique<Perturbation>(context.options.model, Geometry::kKeyNorm);
}

std::unique_ptr<Experiment> make_ppl(const ExperimentContext& context) {
  const EvaluationOptions& options = context.options;
  return std::make_unique<Ppl>(*context.model, options.model, context.texts,
                               PplOptions{.n_windows = options.n,
                                          .n_targets = options.n_targets,
                                          .allow_looped = options.allow_looped});
}

const ExperimentEntry* find_experiment(std::string_view name) {
  const auto* const entry = std::ranges::find(kExperiments, name, &ExperimentEntry::name);
  return entry == std::end(kExperiments) ? nullptr : entry;
}

}  // namespace winnow::eval
