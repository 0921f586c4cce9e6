// What is measured beside the tasks that ask questions: the list. Adding one: an Experiment, its maker in experiments.cpp and
// a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "eval/experiment.h"
#include "eval/text_windows.h"

namespace winnow::eval {

struct EvaluationOptions;

struct ExperimentContext {
  const model::Model* model;  // null: there is none
  std::span<const TokenText> texts;
  const EvaluationOptions& options;  // all three outlive the experiment
};

enum class PolicyUse {
  kNone,   // policies have no say
  kScore,  // their scorers are asked, and nothing is cut
  kCut,
};

struct ExperimentEntry {
  std::string_view name;
  bool needs_model;  // and texts (-f)
  PolicyUse policies;
  bool takes_legacy_order;  // policies may also cut before attention
  std::unique_ptr<Experiment> (*make)(const ExperimentContext&);
  std::string_view help;
};

std::unique_ptr<Experiment> make_anisotropy(const ExperimentContext&);
std::unique_ptr<Experiment> make_anisotropy_pre(const ExperimentContext&);
std::unique_ptr<Experiment> make_correlation(const ExperimentContext&);
std::unique_ptr<Experiment> make_drift(const ExperimentContext&);
std::unique_ptr<Experiment> make_perturbation(const ExperimentContext&);
std::unique_ptr<Experiment> make_perturbation_isotropic(const ExperimentContext&);
std::unique_ptr<Experiment> make_perturbation_knorm(const ExperimentContext&);
std::unique_ptr<Experiment> make_ppl(const ExperimentContext&);

inline constexpr ExperimentEntry kExperiments[] = {
    {"anisotropy", true, PolicyUse::kNone, false, make_anisotropy,
     "whether queries point in one direction, on text that it was not fitted to (-f)"},
    {"anisotropy-pre", true, PolicyUse::kNone, false, make_anisotropy_pre,
     "the same of queries before rotation"},
    {"correlation", true, PolicyUse::kScore, false, make_correlation,
     "how well scores predict the attention that keys receive, on your own text (-f)"},
    {"drift", true, PolicyUse::kCut, true, make_drift,
     "long answers on your own text (-f), see --generate"},
    {"perturbation", false, PolicyUse::kCut, false, make_perturbation,
     "attention on rows of which some are planted along the queries' direction; without a model"},
    {"perturbation-isotropic", false, PolicyUse::kCut, false, make_perturbation_isotropic,
     "the same on noise, where no score can be right"},
    {"perturbation-knorm", false, PolicyUse::kCut, false, make_perturbation_knorm,
     "the same where short keys are what matters"},
    {"ppl", true, PolicyUse::kCut, true, make_ppl,
     "likelihoods on your own text (-f), see --target"},
};
static_assert(std::ranges::is_sorted(kExperiments, {}, &ExperimentEntry::name),
              "kExperiments is sorted by name");

// Null where there is none of that name.
const ExperimentEntry* find_experiment(std::string_view name);

// The modes in which policies are measured, where tasks are asked in the `wanted` ones: an experiment asks nothing, so that only
// legacy order is left of them. None where policies have no say.
std::vector<QuestionMode> modes_of(const ExperimentEntry& experiment,
                                   std::span<const QuestionMode> wanted);

}  // namespace winnow::eval
