// What `winnow run` and `winnow compress` do alike: from flags to a model and options, and from a planned run to its files.
#pragma once

#include "cli/run_flags.h"
#include "engine/run.h"

namespace winnow::cli {

// Throws invalid_argument.
engine::RunOptions run_options(const RunFlags& flags);

// --compression-ratio, if it is given, as the budget that it is; else --budget. Throws invalid_argument.
std::string budget_text(const RunFlags& flags);

// Before an hour is spent: that each output can be written, that no two are the same file, and that a cache file is not
// overwritten without --force. Throws invalid_argument, io.
void check_outputs(const RunFlags& flags);

model::Model load_model(const RunFlags& flags, const engine::RunOptions& options);

// Carries a run out, with a progress bar and under Ctrl-C. Prints the answer as it comes unless it becomes JSON.
engine::RunResult carry_out(engine::Run& run, const RunFlags& flags);

// Warns of values that were out of range, and writes the files that were asked for.
void finish(const engine::Run& run, const RunFlags& flags, const engine::RunResult& result);

// The exit status.
int status_of(const engine::RunResult& result);

}  // namespace winnow::cli
