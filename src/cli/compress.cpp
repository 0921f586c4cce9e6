// winnow compress: reads a document once and writes its cache, cut to a budget, for any number of questions.

#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/policy_flags.h"
#include "cli/run_prompt.h"
#include "cli/run_report.h"
#include "cli/run_steps.h"
#include "cli/verbs.h"

namespace winnow::cli {
namespace {

int compress(const RunFlags& flags) {
  if (flags.is_quiet) {
    set_log_level(LogLevel::kWarning);
  }
  const engine::RunOptions options = run_options(flags);
  if (options.session.evict != engine::EvictWhen::kBeforeQuestion &&
      options.session.evict != engine::EvictWhen::kPerChunk) {
    throw Error(ErrorCode::kInvalidArgument,
                "--evict " + flags.evict +
                    (options.session.evict == engine::EvictWhen::kAfterPrompt
                         ? ": compress reads no question"
                         : ": a cache that was read in legacy order is not saved") +
                    " (allowed: before-question, per-chunk)");
  }
  policy::Policy policy =
      make_policy(flags.policy, budget_text(flags), {.evict = options.session.evict});
  check_can_be_saved(policy);
  flags.pins();  // refused before a model is loaded
  check_outputs(flags);
  model::Model model = load_model(flags, options);
  engine::Run run(model, policy, read_document(flags, model, options.session.chat), options);
  if (!run.weights().advice.empty()) {
    log_info(run.weights().advice);
  }
  if (flags.is_dry_run) {
    write_output((flags.is_json ? plan_json(run, flags.weights).dump(2) : plan_text(run)) + "\n");
    return 0;
  }
  const engine::RunResult result = carry_out(run, flags);
  const engine::Sequence& sequence = *run.session().sequence();
  finish(run, flags, result);
  if (flags.is_json) {
    write_output(compressed_json(model, flags.weights, sequence, result, flags.save_cache).dump(2) +
                 "\n");
  } else {
    log_info(compressed_text(model, sequence, result));
  }
  return status_of(result);
}

}  // namespace

Verb add_compress(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  add_compress_flags(app, *flags);
  return [&app, flags] {
    note_given_flags(app, *flags);
    return compress(*flags);
  };
}

}  // namespace winnow::cli
