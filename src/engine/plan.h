// What a run will take, before any of it is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/transcript.h"
#include "policy/policy.h"

namespace winnow::engine {

// When a document's rows are cut, seen from the question.
enum class EvictWhen {
  kAfterPrompt,     // the question has been read: methods may know it
  kBeforeQuestion,  // the document alone: what a cache for many questions is made of
  kPerChunk,        // after every chunk of the prompt
  kLegacyOrder,     // before the attention of every chunk: PromptEviction::kLegacyOrder
};

EvictWhen parse_evict_when(std::string_view name);  // throws invalid_argument with the list
const char* evict_when_name(EvictWhen when);
PromptEviction prompt_eviction(EvictWhen when);  // of each part of a prompt that is fed at once

// Layer-major where a budget is cut once, chunk-major where nothing is evicted or every chunk is, and where a policy compares
// layers.
PrefillOrder default_prefill_order(const policy::Policy& policy, EvictWhen evict);

// Throws invalid_argument where so many positions are beyond what the model was trained for, or what rope scaling by option
// makes of it.
void check_context(const model::Hyperparameters& hyper, int n_positions);

// What a sequence holds before the prompt is read.
struct Held {
  int n_positions = 0;
  std::vector<int64_t> layer_rows = {};  // [n_layers without a window] of all KV heads; empty: none
  int longest_head = 0;                  // rows of the longest of those heads
  int windowed_rows = 0;                 // of the longest head of a layer with a window
  std::vector<ReadPrompt> prompts = {};  // so far
};

struct PlanInput {
  ReadPrompt prompt = {};  // where it will lie; empty: none is read
  Held held = {};
  int n_predict = 0;  // most tokens that will be generated
  EvictWhen evict = EvictWhen::kAfterPrompt;
  PrefillOrder order = PrefillOrder::kChunkMajor;
  int n_batch = 512;
  ReplaySize replay = {};  // of the document
};

// Rows are per KV head, on average over its layer where heads share; bytes are of all layers and heads.
struct Plan {
  int budget_rows = 0;  // INT_MAX when unlimited
  int max_rows = 0;     // the most a head may ever hold; where heads share, an upper bound
  int kept_rows =
      0;  // the most that one holds once it has been cut; max_rows where each chunk is cut
  int64_t peak_rows = 0;  // the most rows of all layers at once, per KV head (summed over layers)
  size_t kv_held_bytes = 0;    // before the prompt, in memory
  size_t kv_prompt_bytes = 0;  // once the prompt is read and cut
  size_t kv_peak_bytes = 0;
  size_t policy_bytes = 0;       // what the policy remembers of queries
  size_t policy_held_bytes = 0;  // of these, in memory before the prompt
  size_t logits_bytes = 0;       // of logits that the caller asked to keep
  size_t expanded_bytes = 0;     // of weights that will be expanded for the prompt
  size_t kv_full_bytes = 0;      // what the full cache would hold at the end
  size_t gpu_bytes = 0;          // of a GPU's memory, rows included; 0: there is none
  Engine::Footprint footprint{};
  ReplaySize replay = {};  // of the document, once it is read; its rows are part of the peak

  // Of so many bytes of rows, those in the host's memory: all, or with a GPU none.
  size_t on_host(size_t kv_bytes) const { return gpu_bytes > 0 ? 0 : kv_bytes; }
  // Anonymous memory at the peak, beside weights and kept logits.
  size_t peak_bytes() const {
    return on_host(kv_peak_bytes) + policy_bytes + footprint.total_bytes();
  }
};

// What a policy's budget in a cache of this shape comes from, when these prompts have
// been read.
policy::BudgetContext budget_context(std::span<const ReadPrompt> prompts,
                                     const policy::Policy& policy, const cache::CacheShape& shape);

// `shape` without max_rows; `policy` is resolved on the way (a copy of its answer stays in it).
Plan make_plan(const PlanInput& input, const cache::CacheShape& shape, policy::Policy& policy);

// Memory that the plan takes beyond what is taken already, weights to be expanded included.
size_t needed_bytes(const Plan& plan);

// Throws resource_exhausted when the plan does not fit the memory, the cgroup or the address space that is left, or when
// so many threads cannot be started. `reserved_bytes`: address space of the cache that is still to be reserved.
void check_fits(const Plan& plan, size_t reserved_bytes, int n_threads);

}  // namespace winnow::engine
