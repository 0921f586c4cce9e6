#include "eval/evaluation.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/hash.h"
#include "eval/answers.h"
#include "eval/experiments.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;

void check_options(const EvaluationOptions& options) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorCode::kInvalidArgument, text);
  };
  if (options.tasks.empty()) {
    refuse("no task is given");
  }
  if (options.n < 1) {
    refuse(std::to_string(options.n) + " samples; at least 1 is needed");
  }
  if (options.lengths.empty()) {
    refuse("no length is given");
  }
  for (const int length : options.lengths) {
    if (std::ranges::count(options.lengths, length) > 1) {
      refuse("a length of " + std::to_string(length) + " tokens is given twice");
    }
    if (length < 1) {
      refuse("a length of " + std::to_string(length) + " tokens; at least 1 is needed");
    }
  }
}

std::string hash_of(const TokenText& text) {
  return content_hash(std::as_bytes(std::span(text.tokens)));
}

}  // namespace

Shard parse_shard(std::string_view text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto i = std::from_chars(text.data(), end, shard.i);
  if (i.ec == std::errc() && i.ptr != end && *i.ptr == '/') {
    const auto k = std::from_chars(i.ptr + 1, end, shard.k);
    if (k.ec == std::errc() && k.ptr == end && shard.i >= 1 && shard.i <= shard.k) {
      return shard;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              "shard '" + std::string(text) + "' is not i/k with 1 <= i <= k, as in 2/4");
}

Evaluation::Evaluation(const model::Model* model, EvaluationOptions options)
    : model_(model), options_(std::move(options)) {
  check_options(options_);
  if (model_ != nullptr) {
    texts_ = read_texts(options_.texts, *model_);
  }
  for (const TokenText& text : texts_) {
    text_hashes_.push_back(hash_of(text));
  }
  for (const std::string& text : options_.tasks) {
    const Entry& entry = entries_.emplace_back(make_entry(text));
    for (const Entry& other : entries_) {
      if (&other != &entry && other.spec == entry.spec) {
        throw Error(ErrorCode::kInvalidArgument, "task '" + entry.spec + "' is given twice");
      }
    }
  }
  refuse_unused();
}

Evaluation::~Evaluation() = default;

// What is given for tasks that are not asked for.
void Evaluation::refuse_unused() const {
  const auto refuse = [this](const std::string& given, const auto& is_user) {
    std::string users;
    for (const ExperimentEntry& experiment : kExperiments) {
      if (!is_user(experiment)) {
        continue;
      }
      if (std::ranges::count(options_.tasks, experiment.name) > 0) {
        return;
      }
      users += (users.empty() ? "" : ", ") + std::string(experiment.name);
    }
    throw Error(ErrorCode::kInvalidArgument,
                given + ", which no task here uses (those that do: " + users + ")");
  };
  if (!options_.texts.empty()) {
    refuse("a text is given (-f)", [](const ExperimentEntry& each) { return each.needs_model; });
  }
  if (options_.is_by_role && !has_prompts()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--by-role is about the documents of tasks that ask questions, and there is none");
  }
  if (options_.is_by_role && options_.model.engine.is_on_gpu) {
    throw Error(ErrorCode::kUnsupported,
                "--by-role looks at the attention that rows received, on the CPU only (-ngl 0)");
  }
  if (std::ranges::count(options_.questions, QuestionMode::kLegacyOrder) > 0 && !has_prompts()) {
    refuse("legacy order is asked for",
           [](const ExperimentEntry& each) { return each.takes_legacy_order; });
  }
  if (options_.n_targets > 0) {
    refuse("targets are given (--target)",
           [](const ExperimentEntry& each) { return each.name == "ppl"; });
  }
}

Evaluation::Entry Evaluation::make_entry(const std::string& task) const {
  const auto need = [&task](bool is_given, const char* what) {
    if (!is_given) {
      throw Error(ErrorCode::kInvalidArgument, task + " needs " + what);
    }
  };
  Entry entry;
  entry.spec = task;
  if (const ExperimentEntry* const experiment = find_experiment(task)) {
    need(model_ != nullptr || !experiment->needs_model, "a model (--model FILE)");
    need(!texts_.empty() || !experiment->needs_model, "a text to measure on (-f FILE)");
    entry.experiment = experiment->make({.model = model_, .texts = texts_, .options = options_});
    entry.arms = make_arms(options_.policies, modes_of(*experiment, options_.questions));
  } else {
    ParsedTask parsed = parse_task(task);
    need(model_ != nullptr, "a model (--model FILE)");
    entry.spec = std::move(parsed.spec);
    entry.task = std::move(parsed.task);
    entry.experiment =
        std::make_unique<Answers>(*model_, options_.model, *entry.task, options_.is_by_role);
    entry.arms = make_arms(options_.policies, options_.questions);
  }
  return entry;
}

ordered_json Evaluation::config() const {
  ordered_json tasks = ordered_json::array();
  for (const Entry& entry : entries_) {
    tasks.push_back(entry.spec);
  }
  ordered_json policies = ordered_json::array();
  for (const policy::Policy& policy : options_.policies) {
    policies.push_back(policy.spec());
  }
  ordered_json questions = ordered_json::array();
  for (const QuestionMode mode : options_.questions) {
    questions.push_back(question_mode_name(mode));
  }
  ordered_json texts = ordered_json::array();
  for (size_t i = 0; i < texts_.size(); ++i) {
    texts.push_back({{"name", texts_[i].name}, {"tokens_hash", text_hashes_[i]}});
  }
  return {{"tasks", std::move(tasks)},
          {"policies", std::move(policies)},
          {"question", std::move(questions)},
          {"lengths", options_.lengths},
          {"n", options_.n},
          {"seed", options_.seed},
          {"texts", std::move(texts)},
          {"target", options_.n_targets},
          {"generate", options_.n_generated},
          {"allow_looped", options_.allow_looped},
          {"by_role", options_.is_by_role},
          {"roles", options_.model.roles.name()},
          {"shard", {options_.shard.i, options_.shard.k}},
          {"cache_type_k", cache::row_type_name(options_.model.key_type)},
          {"cache_type_v", cache::row_type_name(options_.model.value_type)},
          {"batch", options_.model.engine.n_batch},
          {"chat_template", options_.model.chat.has_template
                                ? ordered_json(options_.model.chat.chat_template)
                                : ordered_json(nullptr)}};
}

template <typename Body>
void Evaluation::for_each_sample(const Body& body) {
  int unit = 0;
  for (Entry& entry : entries_) {
    for (const int n_tokens : options_.lengths) {
      for (int index = 0; index < options_.n; ++index) {
        if (unit++ % options_.shard.k == options_.shard.i - 1) {
          body(entry, SampleId{.n_tokens = n_tokens, .index = index, .seed = options_.seed});
        }
      }
    }
  }
}

void Evaluation::run(Results& results,
                     const std::function<void(const EvaluationProgress&)>& progress,
                     const std::atomic<bool>* cancel) {
  EvaluationProgress state;
  for_each_sample([&](const Entry&, const SampleId&) { ++state.n_all; });
  for_each_sample([&](Entry& entry, const SampleId& sample) {
    std::vector<Arm> missing;
    for (const Arm& arm : entry.arms) {
      Record record = record_for(sample, arm);
      record.task = entry.spec;
      if (!results.contains(record)) {
        missing.push_back(arm);
      }
    }
    if (!missing.empty()) {
      size_t n_arms_done = 0;
      const auto done = [&](Record record) {
        record.task = entry.spec;
        results.add(record);
        ++n_arms_done;
        state.fraction = (state.n_done +
                          static_cast<double>(n_arms_done) / static_cast<double>(missing.size())) /
                         state.n_all;
        progress(state);
      };
      entry.experiment->measure(sample, missing, done, cancel);
    }
    ++state.n_done;
    state.fraction = static_cast<double>(state.n_done) / state.n_all;
    progress(state);
  });
}

void Evaluation::dump_prompts(const std::function<void(const std::string&)>& line) {
  for_each_sample([&](const Entry& entry, const SampleId& sample) {
    if (entry.task == nullptr) {
      return;
    }
    const Prompt prompt = make_prompt(*entry.task, sample, *model_, options_.model);
    line(ordered_json{{"task", entry.spec},
                      {"n_tokens", sample.n_tokens},
                      {"index", sample.index},
                      {"id", prompt.sample.id},
                      {"n_prompt", prompt.n_tokens(0)},
                      {"document", prompt.sample.document},
                      {"questions", prompt.sample.questions},
                      {"answers", prompt.sample.answers},
                      {"labels", prompt.sample.labels}}
             .dump());
  });
}

}  // namespace winnow::eval
