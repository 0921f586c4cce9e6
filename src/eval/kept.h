// What a cache holds, put into a record, and whether that is what was promised.
#pragma once

#include "engine/sequence.h"
#include "eval/record.h"

namespace winnow::eval {

// The rows and bytes of a sequence whose prompt has been read and cut. Of what is remembered of queries, its own policy's
// part counts; a copy may hold more, that was read for others.
void record_kept(const engine::Sequence& sequence, const model::Hyperparameters& hyper,
                 Record& record);

// What is known at the end, of a sequence that was fed n_positions tokens, the last n_uncut of them without being cut. What
// was not as promised before stays so.
void record_end(const engine::Sequence& sequence, int n_positions, int n_uncut, Record& record);

}  // namespace winnow::eval
