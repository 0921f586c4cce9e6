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

template <typename Made, typename... More>
std::unique_ptr<Experiment> make_on_text(const ExperimentContext& context, More... more) {
  const EvaluationOptions& options = context.options;
  return std::make_unique<Made>(
      *context.model, options.model, context.texts,
      OnText::Windows{.n = options.n, .allow_looped = options.allow_looped}, more...);
}

}  // namespace

std::unique_ptr<Experiment> make_anisotropy(const ExperimentContext& context) {
  return make_on_text<Anisotropy>(context, /*is_before_rotation=*/false);
}

std::unique_ptr<Experiment> make_anisotropy_pre(const ExperimentContext& context) {
  return make_on_text<Anisotropy>(context, /*is_before_rotation=*/true);
}

std::unique_ptr<Experiment> make_correlation(const ExperimentContext& context) {
  return make_on_text<Correlation>(context);
}

std::unique_ptr<Experiment> make_drift(const ExperimentContext& context) {
  return make_on_text<Drift>(context, context.options.n_generated);
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
  return make_on_text<Ppl>(context, context.options.n_targets);
}

const ExperimentEntry* find_experiment(std::string_view name) {
  const auto* const entry = std::ranges::find(kExperiments, name, &ExperimentEntry::name);
  return entry == std::end(kExperiments) ? nullptr : entry;
}

std::vector<QuestionMode> modes_of(const ExperimentEntry& experiment,
                                   std::span<const QuestionMode> wanted) {
  std::vector<QuestionMode> modes;
  if (experiment.policies == PolicyUse::kNone) {
    return modes;
  }
  for (const QuestionMode asked : wanted) {
    const bool is_legacy = experiment.takes_legacy_order && asked == QuestionMode::kLegacyOrder;
    const QuestionMode mode = is_legacy ? QuestionMode::kLegacyOrder : QuestionMode::kNone;
    if (std::ranges::count(modes, mode) == 0) {
      modes.push_back(mode);
    }
  }
  return modes;
}

}  // namespace winnow::eval
