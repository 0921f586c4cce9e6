// A session in a file: what it has read, under which policy, on which model, and its rows (docs/cache-files.md).
#pragma once

#include <string>

#include "base/section_file.h"
#include "cache/snapshot.h"
#include "engine/session.h"

namespace winnow::engine {

// What a file says, checked. Its rows stay in the file, which is mapped, until a session takes them.
struct SavedSession {
  SectionFile file;
  cache::SavedCache rows;
  policy::Policy policy;  // resolved
  kernels::QueryWindow queries;
  kernels::ResidualSimilarity similarity;
  kernels::QueryMoments moments;
  policy::KeyDirections key_directions;
  ChatFormat chat;
  EvictWhen evict;  // as the session had it
  Transcript transcript;
  bool evicted_during_prompt;
  EvictionStats evictions;
  bool is_long_context;  // model::is_long_context() of the session
};

// Throws what SectionFile throws, bad_data for a file that contradicts itself or the model, unsupported for sections or a
// policy that are not known, or invalid_argument for another model or other rope scaling.
SavedSession load_session(const std::string& path, const model::Model& model);

// Throws invalid_argument where a session of n_ctx positions on the model cannot go on from it.
void check_context_of(const SavedSession& saved, const model::Model& model, int n_ctx);

}  // namespace winnow::engine
