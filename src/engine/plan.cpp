#include "engine/plan.h"

#include <algorithm>
#include <climits>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "base/threads.h"
#include "cache/storage.h"

namespace winnow::engine {
namespace {

constexpr NameTable<EvictWhen, 3> kEvictTimes{"time of eviction",
                                              {{EvictWhen::kAfterPrompt, "after-prompt"},
                                               {EvictWhen::kBeforeQuestion, "before-question"},
                                               {EvictWhen::kPerChunk, "per-chunk"}}};

// Follows the number of rows per KV head through a run, of layers that see everything and of those with a window, which
// all have the same one.
class RowCount {
 public:
  RowCount(const cache::CacheShape& shape, const PlanInput& input)
      : shape_(shape),
        input_(input),
        n_windowed_(shape.n_windowed_layers()),
        global_(input.held.global_rows),
        windowed_(input.held.windowed_rows),
        peak_(rows()) {
    for (const int swa_window : shape.swa_windows) {
      swa_window_ = std::max(swa_window_, swa_window);
    }
  }

  void feed(int64_t n_tokens, int64_t budget) {
    if (input_.order == PrefillOrder::kLayerMajor) {
      feed_layer_major(n_tokens, budget);
      return;
    }
    for (int64_t fed = 0; fed < n_tokens; fed += input_.n_batch) {
      step(std::min<int64_t>(n_tokens - fed, input_.n_batch));
      if (input_.evict == EvictWhen::kPerChunk) {
        global_ = std::min(global_, budget);
      }
    }
    global_ = std::min(global_, budget);
  }

  // Followed token by token only where something changes: windows fill up, heads grow to their capacity, and from there on
  // the slack is used up and given back again and again.
  void decode(int64_t n_tokens, int64_t budget, int64_t capacity) {
    const int64_t n_window_fills = std::min<int64_t>(n_tokens, 2 * int64_t{swa_window_} + 64);
    decode_each(n_window_fills, budget, capacity);
    const int64_t rest = n_tokens - n_window_fills;
    const int64_t n_growing = std::clamp<int64_t>(capacity - global_, 0, rest);
    if (n_growing > 0) {
      global_ += n_growing - 1;
      step(1);
    }
    decode_each(std::min(rest - n_growing, capacity - budget + 2), budget, capacity);
  }

  int64_t rows() const { return rows_with(global_, windowed_); }  // of all layers
  int64_t longest() const { return longest_; }
  int64_t peak() const { return peak_; }

 private:
  void decode_each(int64_t n_tokens, int64_t budget, int64_t capacity) {
    for (int64_t i = 0; i < n_tokens; ++i) {
      step(1);
      if (global_ > capacity) {
        global_ = budget;
      }
    }
  }

  int64_t rows_with(int64_t global, int64_t windowed) const {
    return (shape_.n_layers - n_windowed_) * global + n_windowed_ * windowed;
  }

  // A graph over all layers.
  void step(int64_t n_tokens) {
    global_ += n_tokens;
    windowed_ += n_tokens;
    see(rows());
    windowed_ = without_unseen(windowed_);
  }

  // The layer being read holds all tokens or, with a window, what its chunks leave; those before it are cut already, those
  // after it still as they were.
  void feed_layer_major(int64_t n_tokens, int64_t budget) {
    const int64_t cut = std::min(global_ + n_tokens, budget);
    int64_t most_windowed = windowed_;
    int64_t windowed = windowed_;
    for (int64_t fed = 0; fed < n_tokens; fed += input_.n_batch) {
      windowed += std::min<int64_t>(n_tokens - fed, input_.n_batch);
      most_windowed = std::max(most_windowed, windowed);
      windowed = without_unseen(windowed);
    }
    int64_t total = rows();
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
      const bool is_windowed = shape_.swa_window(layer) > 0;
      const int64_t before = is_windowed ? windowed_ : global_;
      see(total - before + (is_windowed ? most_windowed : global_ + n_tokens));
      total += (is_windowed ? windowed : cut) - before;
    }
    longest_ = std::max({longest_, global_ + n_tokens, most_windowed});
    global_ = cut;
    windowed_ = windowed;
  }

  int64_t without_unseen(int64_t rows) const {
    return rows - swa_window_ >= cache::CacheShape::window_slack(swa_window_) ? swa_window_ : rows;
  }

  void see(int64_t rows_of_all_layers) {
    peak_ = std::max(peak_, rows_of_all_layers);
    longest_ = std::max({longest_, global_, n_windowed_ > 0 ? windowed_ : 0});
  }

  const cache::CacheShape& shape_;
  const PlanInput& input_;
  int64_t n_windowed_;
  int swa_window_ = 0;
  int64_t global_;    // rows of a layer that sees everything
  int64_t windowed_;  // rows of a layer with a window
  int64_t longest_ = 0;
  int64_t peak_;
};

// Address space for what the plan does not count: graphs, logits, tokens, text. ggml aborts where a graph finds none.
constexpr size_t kOtherAddressSpace = size_t{16} << 20;

// The stacks of the threads must fit beside the rest; how large they are is best found out by trying.
void check_address_space(const Plan& plan, size_t reserved_bytes, int n_threads) {
  const MemoryLimit space = available_address_space();
  const size_t needed = reserved_bytes + plan.peak_bytes() - plan.kv_peak_bytes +
                        plan.logits_bytes + plan.expanded_bytes + kOtherAddressSpace;
  if (needed > space.bytes) {
    throw Error(ErrorCode::kResourceExhausted, "the run reserves " + format_bytes(needed) +
                                                   " of address space, but " + space.source +
                                                   " leaves " + format_bytes(space.bytes));
  }
  const cache::Storage taken(needed);
  check_threads_start(n_threads);
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
  return when == EvictWhen::kPerChunk ? PromptEviction::kPerChunk : PromptEviction::kAfter;
}

PrefillOrder default_prefill_order(const policy::Policy& policy, EvictWhen evict) {
  const bool is_one_shot = !policy.is_unlimited() && evict != EvictWhen::kPerChunk;
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

policy::BudgetContext budget_context(int n_document, int n_prompt, const cache::CacheShape& shape) {
  return {.n_document = n_document,
          .n_extra = n_prompt - n_document,
          .row_bytes = static_cast<int64_t>(shape.row_bytes()),
          .n_heads =
              std::max<int64_t>(shape.n_layers - shape.n_windowed_layers(), 1) * shape.n_kv_heads};
}

Plan make_plan(const PlanInput& input, const cache::CacheShape& shape, policy::Policy& policy) {
  const PromptLengths& prompt = input.prompt;
  const Held& held = input.held;
  RowCount count(shape, input);
  const int64_t rows_before_prompt = count.rows();
  const auto feed = [&](int n_tokens, int n_read) {
    policy.resolve(
        budget_context(held.n_document + prompt.document, held.n_prompt + n_read, shape));
    if (n_tokens > 0) {
      count.feed(n_tokens, policy.budget_rows());
    }
  };
  if (input.evict == EvictWhen::kBeforeQuestion) {
    feed(prompt.before_question, prompt.before_question);
    feed(prompt.total - prompt.before_question, prompt.total);
  } else {
    feed(prompt.total, prompt.total);
  }
  const int64_t rows_after_prompt = count.rows();
  const int64_t n_decoded = std::max(input.n_predict - 1, 0);  // the last token is not fed
  const int64_t slack = policy.is_unlimited() ? 0 : policy.options().slack;
  count.decode(n_decoded, policy.budget_rows(), saturating_add(policy.budget_rows(), slack));

  const size_t bytes_of_a_row = shape.row_bytes() * static_cast<size_t>(shape.n_kv_heads);
  Plan plan;
  plan.budget_rows = policy.budget_rows();
  plan.max_rows = static_cast<int>(saturating_add(count.longest(), 1));
  plan.peak_rows = count.peak();
  plan.kv_held_bytes = static_cast<size_t>(rows_before_prompt) * bytes_of_a_row;
  plan.kv_prompt_bytes = static_cast<size_t>(rows_after_prompt) * bytes_of_a_row;
  plan.kv_peak_bytes = static_cast<size_t>(count.peak()) * bytes_of_a_row;
  plan.kv_full_bytes = shape.full_bytes(
      static_cast<int>(saturating_add(held.n_positions + prompt.total, n_decoded)));
  return plan;
}

size_t needed_bytes(const Plan& plan) {
  return plan.peak_bytes() - plan.kv_held_bytes + plan.logits_bytes + plan.expanded_bytes;
}

void check_fits(const Plan& plan, size_t reserved_bytes, int n_threads) {
  const MemoryLimit memory = available_memory();
  const size_t needed = needed_bytes(plan);
  if (needed > memory.bytes) {
    const std::string logits =
        plan.logits_bytes == 0 ? "" : ", kept logits " + format_bytes(plan.logits_bytes);
    const std::string weights =
        plan.expanded_bytes == 0 ? "" : ", expanded weights " + format_bytes(plan.expanded_bytes);
    throw Error(ErrorCode::kResourceExhausted,
                "the run needs " + format_bytes(needed) + " at its peak (cache " +
                    format_bytes(plan.kv_peak_bytes) + ", residual stream " +
                    format_bytes(plan.footprint.residual_bytes) + ", computing " +
                    format_bytes(plan.footprint.compute_bytes()) + logits + weights + "), but " +
                    memory.source + " leaves " + format_bytes(memory.bytes) +
                    "; a smaller --budget needs less");
  }
  check_address_space(plan, reserved_bytes, n_threads);
}

}  // namespace winnow::engine
