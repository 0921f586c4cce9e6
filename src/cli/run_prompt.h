// The prompt that -p, -f and --ids make.
#pragma once

#include "cli/run_flags.h"
#include "engine/session.h"

namespace winnow::cli {

// A whole turn, or token ids as they are. Throws invalid_argument, not_found, io, or what tokenize_prompt throws.
engine::PromptTokens read_prompt(const RunFlags& flags, const model::Model& model,
                                 const engine::ChatFormat& chat);

// The same up to a question that is still to come.
engine::PromptTokens read_document(const RunFlags& flags, const model::Model& model,
                                   const engine::ChatFormat& chat);

}  // namespace winnow::cli
