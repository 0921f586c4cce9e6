// One thing that is measured, sample by sample, under every arm.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/session.h"
#include "eval/arm.h"
#include "eval/record.h"

namespace winnow::eval {

// How models are run, alike for all tasks.
struct ModelSettings {
  cache::RowType key_type = cache::RowType::kF16;
  cache::RowType value_type = cache::RowType::kF16;
  engine::EngineOptions engine;
  engine::ChatFormat chat;
  engine::RoleSource roles;  // of tasks' documents
  bool allow_beyond_context = false;
};

// A session of at most n_ctx positions that is run so.
engine::SessionOptions session_options(const ModelSettings& settings, int n_ctx);
// The most positions that an arm takes to have n_document tokens replayed; 0 where none does.
int replay_room(const model::Model& model, const ModelSettings& settings, std::span<const Arm> arms,
                int n_document);
// A turn in the sessions' chat format.
engine::PromptText prompt_text(const ModelSettings& settings, const std::string& document,
                               const std::string& question);

// Throws cancelled where the flag (may be null) is set.
void check_cancel(const std::atomic<bool>* cancel);

// Which sample of a task: the `index`-th of a length.
struct SampleId {
  int n_tokens = 0;
  int index = 0;
  uint64_t seed = 0;  // of the run
};

class Experiment {
 public:
  virtual ~Experiment() = default;

  // Measures the sample under these arms, and calls `done` with each one's record as soon as it is there; what is
  // refused is a record too. Throws cancelled.
  virtual void measure(const SampleId& sample, std::span<const Arm> arms,
                       const std::function<void(Record)>& done,
                       const std::atomic<bool>* cancel) = 0;
};

// The part of a record that says whose it is, but for the task.
Record record_for(const SampleId& sample, const Arm& arm);

// Makes records of a refusal, one for each of these arms. Rethrows errors that are none: all but invalid_argument. Called
// where the error was caught.
void refuse(const SampleId& sample, std::span<const Arm> arms, const Error& error,
            const std::function<void(Record)>& done);

}  // namespace winnow::eval
