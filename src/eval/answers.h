// Questions about a document, answered under every arm: the document is read once, and each arm goes on from a copy that is
// cut to its budget.
#pragma once

#include <memory>

#include "eval/experiment.h"
#include "eval/task.h"

namespace winnow::eval {

// A task's sample as tokens.
struct Prompt {
  Sample sample;
  engine::PromptTokens document;                 // template and document
  std::vector<engine::PromptTokens> questions;   // what follows it
  std::vector<std::vector<model::Token>> golds;  // the text of a perfect answer to each

  int n_tokens(int question) const;
  int n_longest() const;  // with the longest question, and room for its answer
};

// Throws what the task throws.
Prompt make_prompt(const Task& task, const SampleId& sample, const model::Model& model,
                   const ModelSettings& settings);

class Answers : public Experiment {
 public:
  // All outlive it. is_by_role: records also have what RoleDiagnosis says of the document's tokens, where arms are cut after
  // reading, for the first question.
  Answers(const model::Model& model, const ModelSettings& settings, const Task& task,
          bool is_by_role = false)
      : model_(model), settings_(settings), task_(task), is_by_role_(is_by_role) {}

  void measure(const SampleId& sample, std::span<const Arm> arms,
               const std::function<void(Record)>& done, const std::atomic<bool>* cancel) override;

 private:
  struct Shared;

  Shared read_shared(const Prompt& prompt, std::span<const Arm> arms,
                     const std::atomic<bool>* cancel) const;
  std::unique_ptr<engine::Session> ask(const Prompt& prompt, int question, const Arm& arm,
                                       const Shared& shared, const std::atomic<bool>* cancel,
                                       Record& record) const;
  void answer(const Prompt& prompt, const Arm& arm, const Shared& shared,
              const std::atomic<bool>* cancel, Record& record) const;

  const model::Model& model_;
  const ModelSettings& settings_;
  const Task& task_;
  bool is_by_role_;
};

}  // namespace winnow::eval
