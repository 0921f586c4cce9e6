// winnow run: a document, a question, an answer, inside a budget.

#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/policy_flags.h"
#include "cli/run_prompt.h"
#include "cli/run_report.h"
#include "cli/run_steps.h"
#include "cli/saved_cache.h"
#include "cli/verbs.h"

namespace winnow::cli {
namespace {

void check_question(const RunFlags& flags) {
  if (engine::parse_evict_when(flags.evict) == engine::EvictWhen::kBeforeQuestion &&
      !(flags.has_file && flags.has_prompt)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--evict before-question needs a document (-f) and a question (-p)");
  }
}

void check_saving(const RunFlags& flags) {
  if (is_on_gpu(flags.gpu_layers) && !(flags.cache.empty() && flags.save_cache.empty())) {
    throw Error(ErrorCode::kUnsupported,
                "--gpu-layers: caches are saved, and gone on from, on the CPU only (-ngl 0)");
  }
  if (engine::parse_evict_when(flags.evict) == engine::EvictWhen::kLegacyOrder &&
      !flags.save_cache.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--save-cache: a cache that was read in legacy order is not saved");
  }
}

// From the start, or from --cache.
std::unique_ptr<engine::Run> plan_run(const RunFlags& flags, engine::RunOptions& options,
                                      std::optional<policy::Policy> policy, model::Model& model) {
  if (flags.cache.empty()) {
    return std::make_unique<engine::Run>(model, *policy,
                                         read_prompt(flags, model, options.session.chat), options);
  }
  engine::SavedSession saved = load_cache(flags, model);
  if (!flags.has_evict) {
    options.session.evict = saved.evict;
  }
  engine::NextPrompt prompt = next_prompt(flags, model, saved);
  return std::make_unique<engine::Run>(model, std::move(saved), std::move(prompt), options);
}

int answer(const RunFlags& flags) {
  if (flags.is_quiet) {
    set_log_level(LogLevel::kWarning);
  }
  check_saving(flags);
  engine::RunOptions options = run_options(flags);
  std::optional<policy::Policy> policy;
  if (flags.cache.empty()) {
    check_question(flags);
    policy = make_policy(flags.policy, budget_text(flags),
                         {.evict = options.session.evict,
                          .has_question = flags.has_prompt,
                          .is_structured = flags.has_roles && flags.roles != "none"});
    if (!flags.save_cache.empty()) {
      check_can_be_saved(*policy);
    }
  }
  flags.pins();  // refused before a model is loaded
  check_outputs(flags);
  model::Model model = load_model(flags, options);
  load_on_gpu(flags.gpu_layers, model);
  const auto run = plan_run(flags, options, std::move(policy), model);
  if (!run->weights().advice.empty()) {
    log_info(run->weights().advice);
  }
  if (flags.is_dry_run) {
    write_output((flags.is_json ? plan_json(*run, flags.weights).dump(2) : plan_text(*run)) + "\n");
    return 0;
  }
  const engine::RunResult result = carry_out(*run, flags);
  const engine::Sequence& sequence = *run->session().sequence();
  if (flags.is_json) {
    // A token may end inside a character; JSON must not.
    write_output(result_json(model, flags.weights, sequence, result)
                     .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                 "\n");
  } else {
    write_output("\n");
    log_info(result_text(model, sequence, result));
  }
  finish(*run, flags, result);
  return status_of(result);
}

}  // namespace

Verb add_run(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  add_run_flags(app, *flags);
  return [&app, flags] {
    note_given_flags(app, *flags);
    return answer(*flags);
  };
}

}  // namespace winnow::cli
