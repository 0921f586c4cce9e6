// What is measured beside the tasks that ask questions: the list. Adding one: an Experiment, its maker in experiments.cpp and
// a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>

#include "eval/experiment.h"
#include "eval/text_windows.h"

namespace winnow::eval {

struct EvaluationOptions;

struct ExperimentContext {
  const model::Model* model;  // null: there is none
  std::span<const TokenText> texts;
  const EvaluationOptions& options;  // all three outlive the experiment
};

struct ExperimentEntry {
  std::string_view name;
  bool needs_model;    // and texts (-f)
  bool needs_budgets;  // else policies do not cut anything
  std::unique_ptr<Experiment> (*make)(const ExperimentContext&);
  std::string_view help;
};

std::unique_ptr<Experiment> make_correlation(const ExperimentContext&);
std::unique_ptr<Experiment> make_drift(const ExperimentContext&);
std::unique_ptr<Experiment> make_perturbation(const ExperimentContext&);
std::unique_ptr<Experiment> make_perturbation_isotropic(const ExperimentContext&);
std::unique_ptr<Experiment> make_perturbation_knorm(const ExperimentContext&);
std::unique_ptr<Experiment> make_ppl(const ExperimentContext&);

inline constexpr ExperimentEntry kExperiments[] = {
    {"correlation", true, false, make_correlation,
     "how well scores predict the attention that keys receive, on your own text (-f)"},
    {"drift", true, true, make_drift, "long answers on your own text (-f), see --generate"},
    {"perturbation", false, true, make_perturbation,
     "attention on rows of which some are planted along the queries' direction; without a model"},
    {"perturbation-isotropic", false, true, make_perturbation_isotropic,
     "the same on noise, where no score can be right"},
    {"perturbation-knorm", false, true, make_perturbation_knorm,
     "the same where short keys are what matters"},
    {"ppl", true, true, make_ppl, "likelihoods on your own text (-f), see --target"},
};
static_assert(std::ranges::is_sorted(kExperiments, {}, &ExperimentEntry::name),
              "kExperiments is sorted by name");

// Null where there is none of that name.
const ExperimentEntry* find_experiment(std::string_view name);

}  // namespace winnow::eval
