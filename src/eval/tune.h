// The smallest budget whose loss on a user's own document is under a bound.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/experiment.h"

namespace winnow::eval {

struct TuneOptions {
  std::vector<std::string> policies;  // specs without a budget, tried in this order
  double max_loss = 0.02;             // 0 to 1, exclusive
  int n_tuning = 40;                  // questions that candidates are chosen by
  // Others that the loss is bounded by; 0: as many as the document gives, 300 at most.
  int n_held_out = 0;
  int n_answer_tokens = 24;
  uint64_t seed = 0;
  ModelSettings model;
};

// A budget that was tried.
struct TuneStep {
  std::string policy;  // with the budget
  bool is_held_out = false;
  int n_questions = 0;  // asked before it was clear
  int n_different = 0;  // answers that are not the full cache's
  double upper = 1;     // 95 % bound of the loss
  bool is_passed = false;
  int64_t kv_bytes = 0;  // of the document, cut
};

struct TuneResult {
  std::string policy;  // with its budget; empty where no budget could be shown to lose less
  double loss = 1;     // share of the held-out answers that differ from the full cache's
  double upper = 1;    // its one-sided 95 % bound (Clopper and Pearson, Biometrika 26, 1934)
  int n_held_out = 0;
  int n_tuning = 0;
  int n_document = 0;    // tokens
  int64_t kv_bytes = 0;  // of the document, cut
  int64_t kv_full_bytes = 0;
  std::vector<TuneStep> steps;
};

// Throws invalid_argument: options out of range, a policy that is none or has a budget. tune() checks the same.
void check_tune_options(const TuneOptions& options);

// The document is read once and cut before questions are seen; each answer is compared with the full cache's (normalised,
// the first paragraph). For each policy, bisection over budgets finds the smallest that loses at most max_loss of the tuning
// questions, if it is smaller than the policies' before it. The winner is then held to the questions it was not chosen by,
// from two budgets above it downwards, and stops at the first that fails: a fixed sequence, so that the bound holds for what
// passes. Throws invalid_argument: a document with too few questions to show max_loss at all (with the loss that could be
// shown), options out of range, a document that the context has no room for; cancelled.
TuneResult tune(const model::Model& model, const std::string& document, const TuneOptions& options,
                const std::function<void(const TuneStep&)>& on_step,
                const std::atomic<bool>* cancel);

}  // namespace winnow::eval
