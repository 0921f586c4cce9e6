// An evaluation: tasks × lengths × samples, each under every arm, into a folder of results.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "eval/experiment.h"
#include "eval/results.h"
#include "eval/task.h"
#include "eval/text_windows.h"

namespace winnow::eval {

// Every k-th sample, from the i-th on: 1 <= i <= k.
struct Shard {
  int i = 1;
  int k = 1;
};
Shard parse_shard(std::string_view text);  // "2/4"; throws invalid_argument

struct EvaluationOptions {
  std::vector<std::string> tasks;        // "ppl", "drift", "niah:keys=4"
  std::vector<policy::Policy> policies;  // with `full`
  std::vector<QuestionMode> questions{QuestionMode::kAgnostic};
  std::vector<int> lengths{1024};
  int n = 10;  // samples of each task and length
  uint64_t seed = 0;
  std::vector<std::string> texts;  // files, for tasks on real text
  int n_targets = 0;               // of ppl; 0: token by token
  int n_generated = 512;           // of drift
  bool allow_looped = false;
  bool is_by_role = false;  // of tasks that ask questions: RoleDiagnosis too
  Shard shard;
  ModelSettings model;
};

struct EvaluationProgress {
  int n_done = 0;  // samples, those that were there included
  int n_all = 0;
  double fraction = 0;
};

class Evaluation {
 public:
  // The model outlives it, and may be null where no task needs one. Throws invalid_argument: unknown tasks or options, a task
  // that needs a model or a text, lengths below 1, no samples; what read_texts throws.
  Evaluation(const model::Model* model, EvaluationOptions options);
  ~Evaluation();

  // What results depend on, but for model and weights: the options, as config.json has them.
  nlohmann::ordered_json config() const;

  // Measures what the results lack. Throws cancelled, io.
  void run(Results& results, const std::function<void(const EvaluationProgress&)>& progress,
           const std::atomic<bool>* cancel);

  // Whether there is a task that asks questions.
  bool has_prompts() const {
    return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.task != nullptr; });
  }
  // The prompts of all samples, as JSON lines, without running them.
  void dump_prompts(const std::function<void(const std::string&)>& line);

 private:
  struct Entry {
    std::string spec;
    std::unique_ptr<Task> task;  // null: an experiment without prompts
    std::unique_ptr<Experiment> experiment;
    std::vector<Arm> arms;
  };
  void refuse_unused() const;
  Entry make_entry(const std::string& task) const;
  // Calls body(entry, sample) for the samples of the shard.
  template <typename Body>
  void for_each_sample(const Body& body);

  const model::Model* model_;
  EvaluationOptions options_;
  std::vector<TokenText> texts_;
  std::vector<std::string> text_hashes_;
  std::vector<Entry> entries_;
};

}  // namespace winnow::eval
