#include "engine/policy_benchmark.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "cache/cache.h"
#include "engine/evict.h"
#include "kernels/append.h"
#include "kernels/machine_speed.h"
#include "kernels/parallel.h"
#include "policy/filters.h"
#include "policy/protect.h"
#include "policy/select.h"

namespace winnow::engine {
namespace {

using cache::Cache;

constexpr int kGroupSize = 4;  // query heads of a KV head

// Sums of four uniform numbers: near enough to normal, and the same everywhere.
std::vector<float> random_elements(size_t n) {
  std::vector<float> elements(n);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t bits = splitmix64(i);
    float sum = -2.0F;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<float>((bits >> (16 * part)) & 0xffff) / 65536.0F;
    }
    elements[i] = 1.7F * sum;
  }
  return elements;
}

// The rows `slots` from where they lie to `to`, fetched ahead: as fast as rows in any order can be copied.
void copy_rows(const std::byte* rows, size_t row_bytes, std::span<const int> slots, std::byte* to) {
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kAhead < slots.size()) {
      const std::byte* const next = rows + static_cast<size_t>(slots[i + kAhead]) * row_bytes;
      for (size_t at = 0; at < row_bytes; at += 64) {
        __builtin_prefetch(next + at);
      }
    }
    std::memcpy(to + i * row_bytes, rows + static_cast<size_t>(slots[i]) * row_bytes, row_bytes);
  }
}

kernels::Rotation rotation_of(int head_dim) {
  return {.layout = kernels::Rotation::Pairs::kHalves,
          .step = std::pow(10000.0F, -2.0F / static_cast<float>(head_dim)),
          .pairs = std::vector<kernels::Rotation::Pair>(static_cast<size_t>(head_dim / 2))};
}

// A matrix of as many outputs as inputs.
class RandomOutputWeights final : public policy::OutputWeights {
 public:
  explicit RandomOutputWeights(int n_embd)
      : n_embd_(n_embd), elements_(random_elements(static_cast<size_t>(n_embd))) {}

  int n_embd() const override { return n_embd_; }
  void read(int /*layer*/, const Part& part, float* to) const override {
    for (int i = 0; i < part.n_rows; ++i) {
      to = std::copy_n(elements_.begin() + part.first_column, part.n_columns, to);
    }
  }

 private:
  int n_embd_;
  std::vector<float> elements_;  // [n_embd] of every row
};

// Rows here are of one layer, which filters of more layers have, and are not rotated.
void check_filter_heads(const policy::Policy& policy, const PolicyBenchmarkOptions& options) {
  const policy::Filters* const filters = policy.filters();
  if (filters == nullptr) {
    return;
  }
  std::string problem;
  if (filters->shape.n_kv_heads != options.n_kv_heads ||
      filters->shape.head_dim != options.head_dim) {
    problem = "has filters of " + std::to_string(filters->shape.n_kv_heads) + " KV heads of " +
              std::to_string(filters->shape.head_dim) + ", and rows are of " +
              std::to_string(options.n_kv_heads) + " of " + std::to_string(options.head_dim);
  } else if (filters->frame == policy::FilterFrame::kPre) {
    problem = "has filters from before rotation, and rows here are not rotated";
  }
  if (!problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "policy '" + policy.spec() + "' " + problem);
  }
}

class PolicyBenchmark {
 public:
  PolicyBenchmark(const policy::Policy& policy, const PolicyBenchmarkOptions& options)
      : policy_(policy),
        options_(options),
        shape_({.n_layers = 1,
                .n_kv_heads = options.n_kv_heads,
                .head_dim = options.head_dim,
                .key_type = options.row_type,
                .value_type = options.row_type,
                .max_rows = options.n_rows,
                .stores_scores = policy.needs().static_scores(),
                .score_kind = policy.needs().score_kind(),
                .stores_mass = policy.needs().column_mass,
                .stores_output_norms = policy.needs().output_weights}),
        attention_({.n_heads = kGroupSize * options.n_kv_heads,
                    .n_kv_heads = options.n_kv_heads,
                    .head_dim = options.head_dim,
                    .scale = 1.0F / std::sqrt(static_cast<float>(options.head_dim))}),
        queries_({.n_heads = attention_.n_heads,
                  .head_dim = options.head_dim,
                  .n_queries = policy.needs().n_queries,
                  .is_watched = {true}}),
        moments_({.n_heads = attention_.n_heads,
                  .head_dim = options.head_dim,
                  .is_watched = {policy.needs().query_moments}}),
        directions_({.n_layers = 1,
                     .n_kv_heads = options.n_kv_heads,
                     .head_dim = options.head_dim,
                     .sample = policy.needs().key_sample}),
        rotation_(rotation_of(options.head_dim)),
        turns_(rotation_),
        output_weights_(attention_.n_heads * options.head_dim),
        parallel_(options.n_threads),
        elements_(random_elements(static_cast<size_t>(options.n_rows + options.n_kv_heads + 1) *
                                  static_cast<size_t>(options.head_dim))),
        scratch_(static_cast<size_t>(options.n_threads)),
        scores_(static_cast<size_t>(options.n_kv_heads)),
        kept_(static_cast<size_t>(options.n_kv_heads)) {
    policy_.resolve({.n_document = options.n_rows,
                     .row_bytes = static_cast<int64_t>(shape_.row_bytes()),
                     .n_heads = options.n_kv_heads});
    result_.budget_rows = policy_.budget_rows();
    if (policy_.needs().key_sample.n_keys > options.n_rows) {
      throw Error(ErrorCode::kInvalidArgument,
                  "policy '" + policy_.spec() + "' evicts nothing before it has seen " +
                      std::to_string(policy_.needs().key_sample.n_keys) + " keys, and there are " +
                      std::to_string(options.n_rows) + " rows");
    }
    if (policy_.budget_rows() >= options.n_rows) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a budget of " + std::to_string(policy_.budget_rows()) + " rows keeps all " +
                      std::to_string(options.n_rows) + ": there is nothing to measure");
    }
    const std::vector<float> queries =
        random_elements(static_cast<size_t>(policy_.needs().n_queries * attention_.n_heads) *
                        static_cast<size_t>(options.head_dim));
    const int n_queries = std::min(policy_.needs().n_queries, options.n_rows);
    queries_.add(0, queries.data(), n_queries, options.n_rows - n_queries,
                 options.n_rows - n_queries);
    if (policy_.needs().unturned_keys) {
      turns_.reserve(options.n_rows);
    }
    if (moments_.watches(0)) {
      count_queries();
    }
    out_.resize(2 * static_cast<size_t>(options.n_kv_heads * policy_.budget_rows()) *
                shape_.key_bytes());
    for (std::vector<float>& scores : scores_) {
      scores.resize(static_cast<size_t>(options.n_rows));
    }
  }

  PolicyBenchmarkResult run() {
    for (int repetition = 0; repetition <= options_.n_repetitions; ++repetition) {
      is_measured_ = repetition > 0;
      // Twins are filled in turns, so that their pages lie alike, and take turns in going first.
      Cache cache(shape_);
      Cache twin(shape_);
      fill_in_turns(cache, twin);
      measure_score(cache, twin, repetition % 2 == 0);
      measure_select(cache);
      measure_compaction(cache, twin, repetition % 2 == 0);
      measure_one_go();
      measure_chunked();
      if (shape_.stores_scores) {
        measure_append();
      }
    }
    return std::move(result_);
  }

 private:
  // As many as there are rows would show nothing that these do not.
  void count_queries() {
    constexpr int kQueries = 256;
    const auto dim = static_cast<size_t>(options_.head_dim);
    const std::vector<float> q = random_elements(kQueries * dim);
    std::vector<float> turns(kQueries * rotation_.n_rot());
    for (size_t i = 0; i < kQueries; ++i) {
      kernels::turns_at(rotation_, static_cast<int>(i),
                        std::span(turns).subspan(i * rotation_.n_rot(), rotation_.n_rot()));
    }
    std::vector<float> scratch(kernels::QueryMoments::scratch_floats(options_.head_dim));
    for (int head = 0; head < attention_.n_heads; ++head) {
      moments_.add(0, head,
                   {.q = q.data(),
                    .stride = dim,
                    .n_tokens = kQueries,
                    .first_pos = 0,
                    .turns = turns.data()},
                   rotation_, scratch.data());
    }
  }

  // Runs body(head, thread) for all heads.
  template <typename Body>
  void for_heads(const Body& body) {
    parallel_.run(options_.n_kv_heads, [&](int head, int thread) { body(head, thread); });
  }

  template <typename Body>
  void measure(std::vector<double>& times, const Body& body) {
    const Stopwatch stopwatch;
    body();
    if (is_measured_) {
      times.push_back(stopwatch.ms());
    }
  }

  kernels::NewRows new_rows(int head, int first, int n_rows) const {
    const auto dim = static_cast<size_t>(options_.head_dim);
    const float* const keys = elements_.data() + static_cast<size_t>(first + head) * dim;
    kernels::NewRows rows{
        .keys = keys, .values = keys + dim, .stride = dim, .n_rows = n_rows, .first_pos = first};
    if (const kernels::ScoreDirections* const directions = policy_.score_directions()) {
      rows.direction = directions->of(0, head);
    }
    return rows;
  }

  void append(Cache& cache, int head, int first, int n_rows) {
    cache.commit(0, head, n_rows,
                 kernels::append_rows(new_rows(head, first, n_rows), cache.shape(),
                                      cache.reserve(0, head, n_rows)));
    for (int i = first; shape_.stores_mass && i < first + n_rows; ++i) {
      cache.mass(0, head)[cache.rows(0, head).n - (first + n_rows - i)] =
          static_cast<int64_t>(splitmix64(static_cast<uint64_t>(i)) >> 24);
    }
    // What a model's run writes later.
    const bool is_written =
        policy_.needs().replay.is_wanted() || policy_.needs().chunk_attention.is_wanted();
    for (int i = first; is_written && i < first + n_rows; ++i) {
      cache.scores(0, head)[cache.rows(0, head).n - (first + n_rows - i)] =
          static_cast<float>(splitmix64(static_cast<uint64_t>(i)) >> 40) * 0x1p-24F;
    }
  }

  void fill_in_turns(Cache& a, Cache& b) {
    for (int head = 0; head < options_.n_kv_heads; ++head) {
      append(a, head, 0, options_.n_rows);
      append(b, head, 0, options_.n_rows);
    }
  }

  policy::LayerView view(const Cache& cache) {
    rows_.clear();
    for (int head = 0; head < options_.n_kv_heads; ++head) {
      rows_.push_back(cache.rows(0, head));
    }
    directions_.freeze(0, rows_);
    return {.layer = 0,
            .heads = rows_,
            .n_sink = policy_.options().n_sink,
            .n_positions = options_.n_rows,
            .attention = attention_,
            .queries = &queries_,
            .moments = &moments_,
            .rotation = &rotation_,
            .turns = &turns_,
            .output_weights = &output_weights_,
            .key_directions = &directions_};
  }

  // What scores are made of: static scores, keys, values.
  std::vector<std::span<const uint64_t>> words_to_read(const cache::HeadRows& rows) const {
    const auto words = [&](const void* from, size_t row_bytes) {
      return std::span(static_cast<const uint64_t*>(from),
                       static_cast<size_t>(rows.n) * row_bytes / sizeof(uint64_t));
    };
    std::vector<std::span<const uint64_t>> all;
    const policy::Needs needs = policy_.needs();
    if (needs.static_scores()) {
      all.push_back(words(rows.scores, shape_.score_bytes()));
    }
    if (needs.column_mass) {
      all.push_back(words(rows.mass, shape_.mass_bytes()));
    }
    if (needs.keys) {
      all.push_back(words(rows.keys, shape_.key_bytes()));
    }
    if (needs.values) {
      all.push_back(words(rows.values, shape_.value_bytes()));
    }
    return all;
  }

  void measure_score(const Cache& cache, const Cache& twin, bool reads_first) {
    const auto read = [&] {
      std::vector<std::vector<std::span<const uint64_t>>> words;
      result_.read_bytes = 0;
      for (int head = 0; head < options_.n_kv_heads; ++head) {
        words.push_back(words_to_read(twin.rows(0, head)));
        for (const std::span<const uint64_t> part : words.back()) {
          result_.read_bytes += static_cast<double>(part.size_bytes());
        }
      }
      if (result_.read_bytes == 0) {
        return;
      }
      measure(result_.times.read, [&] {
        for_heads([&](int head, int /*thread*/) {
          for (const std::span<const uint64_t> part : words[static_cast<size_t>(head)]) {
            sum_ += kernels::sum_words(part);
          }
        });
      });
    };
    if (reads_first) {
      read();
    }
    const policy::LayerView layer = view(cache);
    measure(result_.times.score, [&] {
      for_heads([&](int head, int thread) {
        policy_.scorer()->score(layer, head, scratch_[static_cast<size_t>(thread)],
                                scores_[static_cast<size_t>(head)]);
      });
    });
    if (!reads_first) {
      read();
    }
  }

  void select_all(std::vector<double>& times, const std::vector<std::vector<float>>& scores,
                  const Cache& cache) {
    const policy::Protection protection{policy_.options().n_sink, policy_.n_recent()};
    measure(times, [&] {
      for_heads([&](int head, int thread) {
        const auto i = static_cast<size_t>(head);
        policy::select(scores[i], policy_.budget_rows(),
                       policy::protect(cache.rows(0, head), protection),
                       scratch_[static_cast<size_t>(thread)], kept_[i]);
      });
    });
  }

  void measure_select(const Cache& cache) {
    const auto of_values = [&](uint64_t n_values) {
      std::vector<std::vector<float>> scores = scores_;
      uint64_t i = 0;
      for (std::vector<float>& head : scores) {
        for (float& score : head) {
          score = static_cast<float>(splitmix64(i++) % n_values);
        }
      }
      return scores;
    };
    std::vector<double> warm_up;
    select_all(warm_up, scores_, cache);
    select_all(result_.times.select_ranks, of_values(128), cache);
    select_all(result_.times.select_two, of_values(2), cache);
    select_all(result_.times.select_equal, of_values(1), cache);
    select_all(result_.times.select, scores_, cache);  // the last: compaction keeps these
  }

  void measure_compaction(Cache& cache, Cache& twin, bool copies_first) {
    const auto copy = [&] {
      const size_t head_bytes = static_cast<size_t>(policy_.budget_rows()) * shape_.key_bytes();
      measure(result_.times.copy, [&] {
        for_heads([&](int head, int /*thread*/) {
          const auto i = static_cast<size_t>(head);
          const cache::HeadRows rows = twin.rows(0, head);
          std::byte* const to = out_.data() + 2 * i * head_bytes;
          copy_rows(rows.keys, shape_.key_bytes(), kept_[i], to);
          copy_rows(rows.values, shape_.value_bytes(), kept_[i], to + head_bytes);
        });
      });
    };
    if (copies_first) {
      copy();
    }
    measure(result_.times.compact, [&] {
      for_heads(
          [&](int head, int /*thread*/) { cache.keep(0, head, kept_[static_cast<size_t>(head)]); });
    });
    if (!copies_first) {
      copy();
    }
    result_.moved_bytes = static_cast<double>(out_.size());
    std::vector<int> first(static_cast<size_t>(policy_.budget_rows()));
    std::iota(first.begin(), first.end(), 0);
    measure(result_.times.give_back,
            [&] { for_heads([&](int head, int /*thread*/) { twin.keep(0, head, first); }); });
  }

  bool evict(Cache& cache) {
    const policy::LayerView layer = view(cache);
    if (!policy_.choose({&layer, 1}, parallel_, choice_)) {
      return false;
    }
    for_heads([&](int head, int thread) {
      const std::vector<int>& kept = choice_.kept[static_cast<size_t>(head)];
      merge_lost_rows(policy_, layer, head, kept, choice_.folds_of(static_cast<size_t>(head)),
                      /*is_copied=*/false, scratch_[static_cast<size_t>(thread)], cache);
      cache.keep(0, head, kept);
    });
    return true;
  }

  void measure_one_go() {
    Cache cache(shape_);
    for (int head = 0; head < options_.n_kv_heads; ++head) {
      append(cache, head, 0, options_.n_rows);
    }
    measure(result_.times.one_go, [&] { evict(cache); });
  }

  void measure_chunked() {
    Cache cache(shape_);
    double ms = 0;
    result_.n_chunked_evictions = 0;
    for (int first = 0; first < options_.n_rows; first += options_.chunk) {
      const int n = std::min(options_.chunk, options_.n_rows - first);
      for (int head = 0; head < options_.n_kv_heads; ++head) {
        append(cache, head, first, n);
      }
      const bool is_last = first + n == options_.n_rows;
      const Stopwatch stopwatch;
      if (is_last || is_due(policy_, cache)) {
        result_.n_chunked_evictions += evict(cache) ? 1 : 0;
      }
      ms += stopwatch.ms();
    }
    if (is_measured_) {
      result_.times.chunked.push_back(ms);
    }
  }

  void measure_append() {
    cache::CacheShape without = shape_;
    without.stores_scores = false;
    Cache a(shape_);
    Cache b(without);
    const auto write = [&](Cache& cache) {  // to the same places again and again
      for_heads([&](int head, int /*thread*/) {
        kernels::append_rows(new_rows(head, 0, options_.n_rows), cache.shape(),
                             cache.reserve(0, head, options_.n_rows));
      });
    };
    write(a);
    write(b);
    measure(result_.times.append, [&] { write(a); });
    measure(result_.times.append_without, [&] { write(b); });
  }

  policy::Policy policy_;
  PolicyBenchmarkOptions options_;
  cache::CacheShape shape_;
  kernels::AttendShape attention_;
  kernels::QueryWindow queries_;
  kernels::QueryMoments moments_;
  policy::KeyDirections directions_;
  kernels::Rotation rotation_;
  kernels::TurnTable turns_;
  RandomOutputWeights output_weights_;
  kernels::ParallelFor parallel_;
  std::vector<float> elements_;   // [n_rows + n_kv_heads + 1, head_dim]; head h begins at row h
  std::vector<Scratch> scratch_;  // [n_threads]
  std::vector<std::vector<float>> scores_;  // [n_kv_heads, n_rows]
  std::vector<std::vector<int>> kept_;      // [n_kv_heads, budget_rows]
  std::vector<std::byte> out_;
  std::vector<cache::HeadRows> rows_;
  policy::Choice choice_;
  std::atomic<uint64_t> sum_{0};
  bool is_measured_ = false;
  PolicyBenchmarkResult result_;
};

}  // namespace

PolicyBenchmarkResult benchmark_policy(const policy::Policy& policy,
                                       const PolicyBenchmarkOptions& options) {
  WINNOW_CHECK(!policy.is_unlimited());
  check_filter_heads(policy, options);
  return PolicyBenchmark(policy, options).run();
}

}  // namespace winnow::engine
