#include "engine/plan.h"

#include <algorithm>
#include <array>
#include <climits>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "cache/storage.h"

namespace winnow::engine {
namespace {

// In the order of EvictWhen.
constexpr std::array<const char*, 3> kEvictNames{"after-prompt", "before-question", "per-chunk"};

// Follows the number of rows per KV head through a run.
class RowCount {
 public:
  RowCount(int64_t n_layers, const PlanInput& input) : n_layers_(n_layers), input_(input) {}

  void feed(int64_t n_tokens, int64_t budget) {
    const int64_t cut = std::min(rows_ + n_tokens, budget);
    if (input_.evict == EvictWhen::kPerChunk) {
      for (int64_t fed = 0; fed < n_tokens; fed += input_.n_batch) {
        rows_ += std::min<int64_t>(n_tokens - fed, input_.n_batch);
        see(n_layers_ * rows_);
        rows_ = std::min(rows_, budget);
      }
      return;
    }
    if (input_.order == PrefillOrder::kLayerMajor) {
      // One layer holds all tokens, those before it are cut already, those after it still as they were.
      see((n_layers_ - 1) * std::max(rows_, cut) + rows_ + n_tokens);
    } else {
      see(n_layers_ * (rows_ + n_tokens));
    }
    longest_ = std::max(longest_, rows_ + n_tokens);
    rows_ = cut;
  }

  void decode(int64_t n_tokens, int64_t capacity) {
    see(n_layers_ * std::min(rows_ + n_tokens, std::max(rows_, capacity + 1)));
  }

  int64_t rows() const { return rows_; }
  int64_t longest() const { return longest_; }
  int64_t peak() const { return peak_; }

 private:
  void see(int64_t rows_of_all_layers) {
    peak_ = std::max(peak_, rows_of_all_layers);
    longest_ = std::max(longest_, (rows_of_all_layers + n_layers_ - 1) / n_layers_);
  }

  int64_t n_layers_;
  const PlanInput& input_;
  int64_t rows_ = 0;
  int64_t longest_ = 0;
  int64_t peak_ = 0;
};

// Address space for what the plan does not count: graphs, logits, tokens, text. ggml aborts where a graph finds none.
constexpr size_t kOtherAddressSpace = size_t{16} << 20;

// The stacks of the threads must fit beside the rest; how large they are is best found out by trying.
void check_address_space(const Plan& plan, const cache::CacheShape& shape, int n_threads) {
  const MemoryLimit space = available_address_space();
  const size_t needed = shape.reserved_bytes() + plan.peak_bytes() - plan.kv_peak_bytes +
                        plan.logits_bytes + kOtherAddressSpace;
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
  for (size_t i = 0; i < kEvictNames.size(); ++i) {
    if (name == kEvictNames.at(i)) {
      return static_cast<EvictWhen>(i);
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              "--evict '" + std::string(name) +
                  "' is not known (after-prompt, before-question, per-chunk)");
}

const char* evict_when_name(EvictWhen when) {
  return kEvictNames.at(static_cast<size_t>(when));
}

policy::BudgetContext budget_context(const PromptLengths& prompt, bool with_question,
                                     const cache::CacheShape& shape) {
  const int n_counted = with_question ? prompt.total : prompt.before_question;
  return {.n_document = prompt.document,
          .n_extra = n_counted - prompt.document,
          .row_bytes = static_cast<int64_t>(shape.row_bytes()),
          .n_heads = static_cast<int64_t>(shape.n_layers) * shape.n_kv_heads};
}

Plan make_plan(const PlanInput& input, const cache::CacheShape& shape, policy::Policy& policy) {
  RowCount count(shape.n_layers, input);
  if (input.evict == EvictWhen::kBeforeQuestion) {
    policy.resolve(budget_context(input.prompt, false, shape));
    count.feed(input.prompt.before_question, policy.budget_rows());
    policy.resolve(budget_context(input.prompt, true, shape));
    count.feed(input.prompt.total - input.prompt.before_question, policy.budget_rows());
  } else {
    policy.resolve(budget_context(input.prompt, true, shape));
    count.feed(input.prompt.total, policy.budget_rows());
  }
  const int64_t rows_after_prompt = count.rows();
  const int64_t n_decoded = std::max(input.n_predict - 1, 0);  // the last token is not fed
  const int64_t slack = policy.is_unlimited() ? 0 : policy.options().slack;
  count.decode(n_decoded, saturating_add(policy.budget_rows(), slack));

  const size_t bytes_of_a_row = shape.row_bytes() * static_cast<size_t>(shape.n_kv_heads);
  const auto n_layers = static_cast<size_t>(shape.n_layers);
  Plan plan;
  plan.budget_rows = policy.budget_rows();
  plan.max_rows = static_cast<int>(saturating_add(count.longest(), 1));
  plan.peak_rows = count.peak();
  plan.kv_prompt_bytes = static_cast<size_t>(rows_after_prompt) * n_layers * bytes_of_a_row;
  plan.kv_peak_bytes = static_cast<size_t>(count.peak()) * bytes_of_a_row;
  plan.kv_full_bytes =
      static_cast<size_t>(input.prompt.total + n_decoded) * n_layers * bytes_of_a_row;
  return plan;
}

void check_fits(const Plan& plan, const cache::CacheShape& shape, int n_threads) {
  const MemoryLimit memory = available_memory();
  const size_t needed = plan.peak_bytes() + plan.logits_bytes;
  if (needed > memory.bytes) {
    const std::string logits =
        plan.logits_bytes == 0 ? "" : ", kept logits " + format_bytes(plan.logits_bytes);
    throw Error(ErrorCode::kResourceExhausted,
                "the run needs " + format_bytes(needed) + " at its peak (cache " +
                    format_bytes(plan.kv_peak_bytes) + ", residual stream " +
                    format_bytes(plan.footprint.residual_bytes) + ", computing " +
                    format_bytes(plan.footprint.compute_bytes + plan.footprint.scratch_bytes) +
                    logits + "), but " + memory.source + " leaves " + format_bytes(memory.bytes) +
                    "; a smaller --budget needs less");
  }
  check_address_space(plan, shape, n_threads);
}

}  // namespace winnow::engine
