// --cache: a saved session, the flags that may not contradict it, and the prompt that it goes on with.
#pragma once

#include "cli/run_flags.h"
#include "engine/run.h"

namespace winnow::cli {

// Loads --cache. Throws what engine::load_session throws, and invalid_argument for a flag that says something else than
// the file, with both values.
engine::SavedSession load_cache(const RunFlags& flags, const model::Model& model);

// With -f or --ids the whole prompt, which begins where the session did. With -p alone a question: of the turn, if that is
// open, else of a new one. Without any, none. Throws what tokenize_prompt throws.
engine::NextPrompt next_prompt(const RunFlags& flags, const model::Model& model,
                               const engine::SavedSession& saved);

}  // namespace winnow::cli
