#include "engine/plan.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <span>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "base/threads.h"
#include "cache/storage.h"
#include "kernels/device_step.h"
#include "policy/schedule.h"

namespace winnow::engine {
namespace {

constexpr NameTable<EvictWhen, 4> kEvictTimes{"time of eviction",
                                              {{EvictWhen::kAfterPrompt, "after-prompt"},
                                               {EvictWhen::kBeforeQuestion, "before-question"},
                                               {EvictWhen::kPerChunk, "per-chunk"},
                                               {EvictWhen::kLegacyOrder, "legacy-order"}}};

// Follows the number of rows through a run: of each layer that sees everything, in all its KV heads, and of those with a
// window, which all have the same one, in each.
class RowCount {
 public:
  RowCount(const cache::CacheShape& shape, const PlanInput& input, const policy::Policy& policy)
      : shape_(shape),
        input_(input),
        policy_(policy),
        n_kv_heads_(shape.n_kv_heads),
        n_windowed_(shape.n_windowed_layers()),
        rows_(input.held.layer_rows),
        head_(input.held.longest_head),
        windowed_(input.held.windowed_rows),
        n_seen_(input.held.n_positions),
        n_to_see_(policy.is_unlimited() ? 0 : policy.needs().key_sample.n_keys) {
    rows_.resize(static_cast<size_t>(shape.n_layers - n_windowed_));
    for (const int swa_window : shape.swa_windows) {
      swa_window_ = std::max(swa_window_, swa_window);
    }
    peak_ = all();
  }

  // n_replayed: the most tokens of a part of what is replayed before rows are cut.
  void feed(int64_t n_tokens, int64_t n_replayed) {
    if (input_.order == PrefillOrder::kLayerMajor) {
      feed_layer_major(n_tokens);
      return;
    }
    if (input_.evict == EvictWhen::kLegacyOrder) {  // one layer-major feed for each chunk
      for (int64_t fed = 0; fed < n_tokens; fed += input_.n_batch) {
        feed_layer_major(std::min<int64_t>(n_tokens - fed, input_.n_batch));
      }
      return;
    }
    if (input_.evict == EvictWhen::kPerChunk &&
        slack() > 0) {  // heads need not be cut at the same time
      longest_ = std::max(longest_, std::min(head_ + n_tokens, most_held() + input_.n_batch));
    }
    for (int64_t fed = 0; fed < n_tokens; fed += input_.n_batch) {
      step(std::min<int64_t>(n_tokens - fed, input_.n_batch));
      if (input_.evict == EvictWhen::kPerChunk) {
        cut_if_due();
      }
    }
    replay(n_replayed);
    cut();
  }

  // Rows that a replay takes until the next part of it, or the cut.
  void replay(int64_t n_tokens) {
    grow(n_tokens);
    see(all());
    grow(-n_tokens);
  }

  // Followed token by token only where something changes: windows fill up, heads grow to their capacity, and from there on
  // the slack is used up and given back again and again.
  void decode(int64_t n_tokens) {
    longest_ = std::max(longest_, std::min(head_ + n_tokens, most_held() + 1));
    const int64_t n_window_fills = std::min<int64_t>(n_tokens, 2 * int64_t{swa_window_} + 64);
    decode_each(n_window_fills);
    const int64_t rest = n_tokens - n_window_fills;
    const int64_t n_growing =
        std::clamp<int64_t>(capacity() - policy::rows_per_head(policy_, held()), 0, rest);
    if (n_growing > 0) {
      grow(n_growing - 1);
      step(1);
    }
    decode_each(std::min(rest - n_growing, slack() + 2));
  }

  // Rows of all layers and KV heads.
  int64_t all() const {
    return std::accumulate(rows_.begin(), rows_.end(), n_windowed_ * windowed_ * n_kv_heads_);
  }
  int64_t peak() const { return peak_; }
  int64_t longest() const { return longest_; }  // of a head

 private:
  int64_t slack() const { return policy_.is_unlimited() ? 0 : policy_.slack(); }
  int64_t capacity() const { return policy_.budget_rows() + slack(); }

  void decode_each(int64_t n_tokens) {
    for (int64_t i = 0; i < n_tokens; ++i) {
      step(1);
      cut_if_due();
    }
  }

  void cut_if_due() {
    if (policy::is_due(policy_, policy::rows_per_head(policy_, held()))) {
      cut();
    }
  }

  policy::RowsHeld held() const {
    policy::RowsHeld held{.n_layers = static_cast<int>(rows_.size()),
                          .n_kv_heads = n_kv_heads_,
                          .longest_head = head_};
    for (const int64_t rows : rows_) {
      held.largest_layer = std::max(held.largest_layer, rows);
      held.all += rows;
    }
    return held;
  }

  int64_t most_kept() const {
    return policy_.most_rows(static_cast<int>(rows_.size()), n_kv_heads_);
  }
  int64_t most_held() const {
    return policy_.most_held_rows(static_cast<int>(rows_.size()), n_kv_heads_);
  }

  // What layers of so many rows keep: all of them, where the policy has not seen enough keys yet.
  const std::vector<int64_t>& divide(std::span<const int64_t> layer_rows) {
    if (!is_ready()) {
      division_.rows.assign(layer_rows.begin(), layer_rows.end());
      return division_.rows;
    }
    n_visible_.clear();
    for (const int64_t rows : layer_rows) {
      for (int kv_head = 0; kv_head < n_kv_heads_; ++kv_head) {
        n_visible_.push_back(static_cast<int>((rows + kv_head) / n_kv_heads_));
      }
    }
    policy_.divide(n_visible_, n_kv_heads_, division_);
    return division_.rows;
  }

  void cut() {
    rows_ = divide(rows_);
    head_ = is_ready() ? std::min(head_, most_kept()) : head_;
  }

  void grow(int64_t n_tokens) {
    for (int64_t& rows : rows_) {
      rows += n_tokens * n_kv_heads_;
    }
    head_ += n_tokens;
    n_seen_ += n_tokens;
  }

  bool is_ready() const { return n_seen_ >= n_to_see_; }

  // A graph over all layers.
  void step(int64_t n_tokens) {
    grow(n_tokens);
    windowed_ += n_tokens;
    see(all());
    windowed_ = without_unseen(windowed_);
  }

  // The layer being read holds all tokens or, with a window, what its chunks leave; those before it are cut already, those
  // after it still as they were.
  void feed_layer_major(int64_t n_tokens) {
    int64_t most_windowed = windowed_;
    int64_t windowed = windowed_;
    for (int64_t fed = 0; fed < n_tokens; fed += input_.n_batch) {
      windowed += std::min<int64_t>(n_tokens - fed, input_.n_batch);
      most_windowed = std::max(most_windowed, windowed);
      windowed = without_unseen(windowed);
    }
    int64_t total = all();
    const std::vector<int64_t> before = rows_;
    grow(n_tokens);
    const std::vector<int64_t>& shares = divide(rows_);
    size_t unwindowed = 0;
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
      if (shape_.swa_window(layer) > 0) {
        see(total + (most_windowed - windowed_) * n_kv_heads_);
        total += (windowed - windowed_) * n_kv_heads_;
      } else {
        see(total - before[unwindowed] + rows_[unwindowed]);
        total += shares[unwindowed] - before[unwindowed];
        ++unwindowed;
      }
    }
    longest_ = std::max(longest_, most_windowed);
    windowed_ = windowed;
    cut();
  }

  int64_t without_unseen(int64_t rows) const {
    return rows - swa_window_ >= cache::CacheShape::window_slack(swa_window_) ? swa_window_ : rows;
  }

  void see(int64_t rows_of_all_layers) {
    peak_ = std::max(peak_, rows_of_all_layers);
    longest_ = std::max({longest_, head_, n_windowed_ > 0 ? windowed_ : 0});
  }

  const cache::CacheShape& shape_;
  const PlanInput& input_;
  const policy::Policy& policy_;  // resolved by the time that anything is cut
  int n_kv_heads_;
  int64_t n_windowed_;
  int swa_window_ = 0;
  std::vector<int64_t> rows_;  // of each layer that sees everything
  int64_t head_;               // the most rows of one of their heads
  int64_t windowed_;           // rows of each head of a layer with a window
  int64_t n_seen_;             // positions
  int64_t n_to_see_;           // before any row goes
  int64_t longest_ = 0;
  int64_t peak_ = 0;
  std::vector<int> n_visible_;
  policy::Division division_;
};

// Address space for what the plan does not count: graphs, logits, tokens, text. ggml aborts where a graph finds none.
constexpr size_t kOtherAddressSpace = size_t{16} << 20;

// The stacks of the threads must fit beside the rest; how large they are is best found out by trying.
void check_address_space(const Plan& plan, size_t reserved_bytes, int n_threads) {
  const MemoryLimit space = available_address_space();
  const size_t needed = reserved_bytes + plan.peak_bytes() - plan.on_host(plan.kv_peak_bytes) +
                        plan.logits_bytes + plan.expanded_bytes + kOtherAddressSpace;
  if (needed > space.bytes) {
    throw Error(ErrorCode::kResourceExhausted, "the run reserves " + format_bytes(needed) +
                                                   " of address space, but " + space.source +
                                                   " leaves " + format_bytes(space.bytes));
  }
  const cache::Storage taken(needed);
  check_threads_start(n_threads);
}

void check_fits_gpu(const Plan& plan) {
  if (plan.gpu_bytes == 0) {
    return;
  }
  const size_t free_bytes = kernels::device_memory_limit().free_bytes;
  if (plan.gpu_bytes > free_bytes) {
    throw Error(ErrorCode::kResourceExhausted,
                "the run needs " + format_bytes(plan.gpu_bytes) +
                    " of GPU memory at its peak (cache " + format_bytes(plan.kv_peak_bytes) +
                    "), of which " + format_bytes(free_bytes) +
                    " are free; a smaller --budget or batch (-b) needs less");
  }
}

int64_t saturating_add(int64_t a, int64_t b) {
  return std::min<int64_t>(a + b, INT_MAX);
}

}  // namespace

EvictWhen parse_evict_when(std::string_view name) {
  return kEvictTimes.parse(name);
}

const char* evict_when_name(EvictWhen when) {
  return kEvictTimes.name(when);
}

PromptEviction prompt_eviction(EvictWhen when) {
  switch (when) {
    case EvictWhen::kAfterPrompt:
    case EvictWhen::kBeforeQuestion:
      break;
    case EvictWhen::kPerChunk:
      return PromptEviction::kPerChunk;
    case EvictWhen::kLegacyOrder:
      return PromptEviction::kLegacyOrder;
  }
  return PromptEviction::kAfter;
}

PrefillOrder default_prefill_order(const policy::Policy& policy, EvictWhen evict) {
  const bool is_one_shot =
      !policy.is_unlimited() && !policy.needs_all_layers() && !cuts_chunks(prompt_eviction(evict));
  return is_one_shot ? PrefillOrder::kLayerMajor : PrefillOrder::kChunkMajor;
}

void check_context(const model::Hyperparameters& hyper, int n_positions) {
  if (n_positions <= hyper.n_ctx_scaled) {
    return;
  }
  const std::string trained = std::to_string(hyper.n_ctx_train) + " the model was trained for";
  const std::string scaled =
      hyper.n_ctx_scaled == hyper.n_ctx_train
          ? ""
          : std::to_string(hyper.n_ctx_scaled) + " that rope scaling makes of the ";
  throw Error(ErrorCode::kInvalidArgument, "a context of " + std::to_string(n_positions) +
                                               " tokens is beyond the " + scaled + trained +
                                               "; --allow-beyond-context permits it");
}

policy::BudgetContext budget_context(std::span<const ReadPrompt> prompts,
                                     const policy::Policy& policy, const cache::CacheShape& shape) {
  return {.n_document = n_document(prompts),
          .n_extra = n_prompt(prompts) - n_document(prompts),
          .row_bytes = static_cast<int64_t>(shape.row_bytes()),
          .n_heads =
              std::max<int64_t>(shape.n_layers - shape.n_windowed_layers(), 1) * shape.n_kv_heads,
          .spans = protected_spans(prompts, policy),
          .roles = policy.needs().roles ? roles_by_position(prompts) : std::vector<roles::Role>{}};
}

Plan make_plan(const PlanInput& input, const cache::CacheShape& shape, policy::Policy& policy) {
  const Held& held = input.held;
  RowCount count(shape, input, policy);
  const int64_t rows_before_prompt = count.all();
  std::vector<ReadPrompt> prompts = held.prompts;
  prompts.push_back(input.prompt);
  const auto feed_up_to = [&](int end, int n_replayed) {
    const int n_tokens = end - prompts.back().end;
    prompts.back().end = end;
    policy.resolve(budget_context(prompts, policy, shape));
    if (n_tokens > 0) {
      count.feed(n_tokens, n_replayed);
    }
  };
  prompts.back().end = input.prompt.begin;
  const bool is_document_first =
      input.evict == EvictWhen::kBeforeQuestion && input.prompt.document_end > input.prompt.begin;
  if (is_document_first) {
    feed_up_to(input.prompt.document_end, input.replay.n_most);
  }
  feed_up_to(input.prompt.end, is_document_first ? 0 : input.replay.n_most);
  const int64_t rows_after_prompt = count.all();
  const int64_t n_decoded = std::max(input.n_predict - 1, 0);  // the last token is not fed
  count.decode(n_decoded);

  Plan plan;
  plan.budget_rows = policy.budget_rows();
  plan.max_rows = static_cast<int>(saturating_add(count.longest(), 1));
  const int n_cut_layers = shape.n_layers - shape.n_windowed_layers();
  plan.kept_rows =
      cuts_chunks(prompt_eviction(input.evict))
          ? plan.max_rows
          : static_cast<int>(std::min<int64_t>(
                plan.max_rows, policy.most_held_rows(n_cut_layers, shape.n_kv_heads) + 1));
  plan.peak_rows = (count.peak() + shape.n_kv_heads - 1) / shape.n_kv_heads;
  plan.kv_held_bytes = static_cast<size_t>(rows_before_prompt) * shape.row_bytes();
  plan.kv_prompt_bytes = static_cast<size_t>(rows_after_prompt) * shape.row_bytes();
  plan.kv_peak_bytes = static_cast<size_t>(count.peak()) * shape.row_bytes();
  plan.replay = input.replay;
  plan.kv_full_bytes = shape.full_bytes(
      static_cast<int>(saturating_add(std::max(held.n_positions, input.prompt.end), n_decoded)));
  return plan;
}

size_t needed_bytes(const Plan& plan) {
  const size_t held = plan.policy_held_bytes + plan.on_host(plan.kv_held_bytes);
  return plan.peak_bytes() - held + plan.logits_bytes + plan.expanded_bytes;
}

void check_fits(const Plan& plan, size_t reserved_bytes, int n_threads) {
  const MemoryLimit memory = available_memory();
  const size_t needed = needed_bytes(plan);
  if (needed > memory.bytes) {
    const std::string remembered =
        plan.policy_bytes == 0 ? "" : ", queries for the policy " + format_bytes(plan.policy_bytes);
    const std::string logits =
        plan.logits_bytes == 0 ? "" : ", kept logits " + format_bytes(plan.logits_bytes);
    const std::string weights =
        plan.expanded_bytes == 0 ? "" : ", expanded weights " + format_bytes(plan.expanded_bytes);
    throw Error(ErrorCode::kResourceExhausted,
                "the run needs " + format_bytes(needed) + " at its peak (cache " +
                    format_bytes(plan.kv_peak_bytes) + ", residual stream " +
                    format_bytes(plan.footprint.residual_bytes) + ", computing " +
                    format_bytes(plan.footprint.compute_bytes()) + remembered + logits + weights +
                    "), but " + memory.source + " leaves " + format_bytes(memory.bytes) +
                    "; a smaller --budget needs less");
  }
  check_address_space(plan, reserved_bytes, n_threads);
  check_fits_gpu(plan);
}

}  // namespace winnow::engine
