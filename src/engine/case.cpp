#include "engine/case.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/error.h"
#include "cache/cache.h"
#include "engine/admission.h"
#include "engine/evict.h"
#include "kernels/append.h"
#include "kernels/parallel.h"
#include "kernels/row_kernels.h"
#include "policy/filters.h"
#include "policy/window_attention.h"

namespace winnow::engine {
namespace {

// How many of the last rows, up to n_most, have positions without a gap.
int n_consecutive(std::span<const int32_t> positions, int n_most) {
  int n = 1;
  const auto end = std::ssize(positions);
  while (n < n_most && positions[static_cast<size_t>(end - n - 1)] ==
                           positions[static_cast<size_t>(end - n)] - 1) {
    ++n;
  }
  return n;
}

// What is missing of what the policy reads; empty when nothing is.
std::string missing(const Case& given, const policy::Policy& policy) {
  const policy::Needs needs = policy.needs();
  std::vector<std::string> problems;
  if (needs.values && given.values.empty()) {
    problems.emplace_back("needs values, and there is no V");
  }
  if (needs.column_mass && given.n_queries < given.n_rows) {
    problems.push_back("needs column mass, which is computed from the queries of all " +
                       std::to_string(given.n_rows) + " rows, and " +
                       (given.n_heads == 0 ? "there is no Q"
                                           : "Q has those of " + std::to_string(given.n_queries)));
  }
  if (needs.query_moments && (given.n_queries < given.n_rows || given.frequencies.empty())) {
    problems.push_back(
        "needs moments of the queries before rotation, which take the queries of all " +
        std::to_string(given.n_rows) +
        " rows and the frequencies of their rotation, "
        "and there " +
        (given.n_queries < given.n_rows ? "are no such queries" : "are no frequencies"));
  }
  const int n_queries = std::min(needs.n_queries, given.n_rows);
  if (given.n_queries < n_queries) {
    problems.push_back(
        "needs the last " + std::to_string(n_queries) + " queries, and " +
        (given.n_heads == 0 ? "there is no Q" : "Q has " + std::to_string(given.n_queries)));
  } else if (n_queries > 0 && n_consecutive(given.positions, n_queries) < n_queries) {
    problems.push_back("needs the last " + std::to_string(n_queries) +
                       " queries, and the positions of the last " + std::to_string(n_queries) +
                       " rows have gaps");
  }
  if (needs.residual_similarity) {
    problems.emplace_back(
        "needs the residual stream around attention, which only a model's run has");
  }
  if (needs.chunk_attention.is_wanted() && given.n_queries < given.n_rows) {
    problems.push_back("needs attention in chunks, which is computed from the queries of all " +
                       std::to_string(given.n_rows) + " rows, and " +
                       (given.n_heads == 0 ? "there is no Q"
                                           : "Q has those of " + std::to_string(given.n_queries)));
  }
  if (needs.unturned_keys && given.frequencies.empty()) {
    problems.emplace_back("needs keys before rotation, and there are no frequencies");
  }
  if (needs.replay.is_wanted()) {
    problems.emplace_back("needs a replay of the document, which only a model's run has");
  }
  if (needs.output_weights) {
    problems.push_back("needs the output projection, and a case holds no weights");
  }
  if (given.n_rows < needs.key_sample.n_keys) {
    problems.push_back("needs the first " + std::to_string(needs.key_sample.n_keys) +
                       " keys, and K has " + std::to_string(given.n_rows));
  }
  if (policy.filters() != nullptr && policy.filters()->needs_rotation() &&
      given.frequencies.empty()) {
    problems.emplace_back(
        "has statistics of queries before rotation, and there are no frequencies");
  }
  if (std::string problem =
          filters_problem(policy, given.n_layers, given.n_kv_heads, given.head_dim, "K is of");
      !problem.empty()) {
    problems.push_back(std::move(problem));
  }
  if (needs.roles && given.roles.empty()) {
    problems.emplace_back("needs roles, and there is no array of them");
  }
  std::string text;
  for (const std::string& problem : problems) {
    text += (text.empty() ? "" : "; ") + problem;
  }
  return text;
}

kernels::Rotation rotation_of(std::span<const float> frequencies) {
  kernels::Rotation rotation{.layout = kernels::Rotation::Pairs::kHalves,
                             .pairs = std::vector<kernels::Rotation::Pair>(frequencies.size())};
  for (size_t i = 0; i < frequencies.size(); ++i) {
    rotation.pairs[i].divisor = 1.0F / frequencies[i];
  }
  return rotation;
}

class CaseScorer {
 public:
  CaseScorer(const Case& given, policy::Policy policy, int n_threads)
      : given_(given),
        policy_(std::move(policy)),
        needs_(policy_.needs()),
        cache_({.n_layers = given.n_layers,
                .n_kv_heads = given.n_kv_heads,
                .head_dim = given.head_dim,
                .key_type = given.key_type,
                .value_type = given.value_type,
                .max_rows = given.n_rows,
                .stores_scores = needs_.key_norms || needs_.chunk_attention.is_wanted(),
                .score_kind = needs_.score_kind(),
                .stores_mass = needs_.column_mass}),
        attention_({.n_heads = given.n_heads,
                    .n_kv_heads = given.n_kv_heads,
                    .head_dim = given.head_dim,
                    .scale = given.scale}),
        queries_({.n_heads = given.n_heads,
                  .head_dim = given.head_dim,
                  .n_queries = needs_.n_queries,
                  .is_watched = std::vector<bool>(static_cast<size_t>(given.n_layers), true)}),
        moments_({.n_heads = given.n_heads,
                  .head_dim = given.head_dim,
                  .is_watched = std::vector<bool>(static_cast<size_t>(given.n_layers),
                                                  needs_.query_moments)}),
        directions_({.n_layers = given.n_layers,
                     .n_kv_heads = given.n_kv_heads,
                     .head_dim = given.head_dim,
                     .sample = needs_.key_sample}),
        rotation_(rotation_of(given.frequencies)),
        parallel_(n_threads),
        scratch_(static_cast<size_t>(n_threads)) {
    policy_.resolve({.n_document = given.n_rows,
                     .row_bytes = static_cast<int64_t>(cache_.shape().row_bytes()),
                     .n_heads = n_heads(),
                     .roles = roles_by_position()});
  }

  CaseResult run() {
    for_heads([&](int layer, int kv_head, Scratch& scratch) {
      append(layer, kv_head);
      if (needs_.column_mass) {
        add_mass(layer, kv_head, scratch);
      }
      if (needs_.chunk_attention.is_wanted()) {
        attend_chunks(layer, kv_head, scratch);
      }
    });
    for (int layer = 0; needs_.n_queries > 0 && layer < given_.n_layers; ++layer) {
      add_queries(layer);
    }
    if (needs_.query_moments) {
      count_queries();
    }
    view_layers();
    CaseResult result;
    result.budget_rows = policy_.budget_rows();
    score(result);
    choose(result);
    return result;
  }

 private:
  int n_heads() const { return given_.n_layers * given_.n_kv_heads; }
  size_t dim() const { return static_cast<size_t>(given_.head_dim); }
  size_t n_rows() const { return static_cast<size_t>(given_.n_rows); }
  size_t head_index(int layer, int kv_head) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(given_.n_kv_heads) +
           static_cast<size_t>(kv_head);
  }

  // Positions without a row are PROSE, and no row's.
  std::vector<roles::Role> roles_by_position() const {
    std::vector<roles::Role> roles;
    for (size_t row = 0; row < given_.roles.size(); ++row) {
      roles.resize(static_cast<size_t>(given_.positions[row]), roles::Role::kProse);
      roles.push_back(given_.roles[row]);
    }
    return roles;
  }

  // Runs body(layer, kv_head, scratch) for all heads.
  template <typename Body>
  void for_heads(const Body& body) {
    parallel_.run(n_heads(), [&](int item, int thread) {
      body(item / given_.n_kv_heads, item % given_.n_kv_heads,
           scratch_[static_cast<size_t>(thread)]);
    });
  }

  // Calls body(first, n) for each run of rows at consecutive positions.
  template <typename Body>
  void for_runs(const Body& body) const {
    for (int first = 0; first < given_.n_rows;) {
      int n = 1;
      while (first + n < given_.n_rows && position(first + n) == position(first) + n) {
        ++n;
      }
      body(first, n);
      first += n;
    }
  }
  int32_t position(int row) const { return given_.positions[static_cast<size_t>(row)]; }

  void append(int layer, int kv_head) {
    const size_t begin = head_index(layer, kv_head) * n_rows() * dim();
    const std::vector<float> zeros(given_.values.empty() ? n_rows() * dim() : 0);
    const float* const values = zeros.empty() ? given_.values.data() + begin : zeros.data();
    for_runs([&](int first, int n) {
      const size_t at = static_cast<size_t>(first) * dim();
      const kernels::NewRows rows{.keys = given_.keys.data() + begin + at,
                                  .values = values + at,
                                  .stride = dim(),
                                  .n_rows = n,
                                  .first_pos = position(first)};
      cache_.commit(layer, kv_head, n,
                    kernels::append_rows(rows, cache_.shape(), cache_.reserve(layer, kv_head, n)));
    });
  }

  // The queries of some heads and of the tokens from `first` on, a token after the other: q [n, heads, head_dim].
  void copy_queries(int layer, int first_head, int heads, int first, int n, float* q) const {
    const auto n_queries = static_cast<size_t>(given_.n_queries);
    for (int i = 0; i < n; ++i) {
      for (int head = first_head; head < first_head + heads; ++head) {
        const size_t row = (static_cast<size_t>(layer) * static_cast<size_t>(given_.n_heads) +
                            static_cast<size_t>(head)) *
                               n_queries +
                           static_cast<size_t>(first + i);
        q = std::copy_n(given_.queries.data() + row * dim(), dim(), q);
      }
    }
  }

  void add_mass(int layer, int kv_head, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    const int group = attention_.gqa_group_size();
    const size_t token = static_cast<size_t>(group) * dim();
    const std::span<float> q = scratch.take<float>(n_rows() * token);
    copy_queries(layer, kv_head * group, group, 0, given_.n_rows, q.data());
    for_runs([&](int first, int n) {
      policy::add_attention_mass(cache_.rows(layer, kv_head),
                                 {.q = q.data() + static_cast<size_t>(first) * token,
                                  .token_stride = token,
                                  .n_heads = group,
                                  .n_tokens = n,
                                  .first_pos = position(first)},
                                 given_.scale, kernels::kMassScale, scratch,
                                 {cache_.mass(layer, kv_head), n_rows()});
    });
  }

  // Of the chunks that end with the last position or before.
  void attend_chunks(int layer, int kv_head, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    const int length = needs_.chunk_attention.length;
    const int group = attention_.gqa_group_size();
    const size_t token = static_cast<size_t>(group) * dim();
    const cache::HeadRows rows = cache_.rows(layer, kv_head);
    const std::span<float> q = scratch.take<float>(static_cast<size_t>(length) * token);
    const std::span<float> memory =
        scratch.take<float>(kernels::chunk_scratch_floats(given_.head_dim));
    for (int begin = 0; begin + length <= given_.positions.back() + 1; begin += length) {
      const kernels::ChunkSlots slots = kernels::chunk_slots(rows, begin, length);
      const int n = slots.last - slots.first;
      const std::span<int64_t> mass = scratch.take_filled(static_cast<size_t>(n), int64_t{0});
      copy_queries(layer, kv_head * group, group, slots.first, n, q.data());
      kernels::add_chunk_attention(
          rows, slots, {.q = q.data(), .token_stride = token, .n_heads = group, .n_tokens = n},
          needs_.chunk_attention.is_scaled ? given_.scale : 1.0F, memory.data(), mass);
      std::ranges::transform(mass, cache_.scores(layer, kv_head) + slots.first, [](int64_t each) {
        return static_cast<float>(static_cast<double>(each) / kernels::kMassScale);
      });
    }
  }

  void add_queries(int layer) {
    const int n = std::min(needs_.n_queries, given_.n_rows);
    std::vector<float> q(static_cast<size_t>(n) * static_cast<size_t>(given_.n_heads) * dim());
    copy_queries(layer, 0, given_.n_heads, given_.n_queries - n, n, q.data());
    queries_.add(layer, q.data(), n, position(given_.n_rows - n), position(given_.n_rows - n));
  }

  // A token at a time, since positions may have gaps.
  void count_queries() {
    std::vector<float> turns(rotation_.n_rot());
    std::vector<float> q(dim());
    std::vector<float> scratch(kernels::QueryMoments::scratch_floats(given_.head_dim));
    for (int row = 0; row < given_.n_rows; ++row) {
      kernels::turns_at(rotation_, position(row), turns);
      for (int item = 0; item < given_.n_layers * given_.n_heads; ++item) {
        const int layer = item / given_.n_heads;
        const int head = item % given_.n_heads;
        copy_queries(layer, head, 1, row, 1, q.data());
        moments_.add(layer, head,
                     {.q = q.data(),
                      .stride = dim(),
                      .n_tokens = 1,
                      .first_pos = position(row),
                      .turns = turns.data()},
                     rotation_, scratch.data());
      }
    }
  }

  void view_layers() {
    for (int head = 0; head < n_heads(); ++head) {
      rows_.push_back(cache_.rows(head / given_.n_kv_heads, head % given_.n_kv_heads));
    }
    if (needs_.unturned_keys) {
      turns_ = kernels::TurnTable(rotation_);
      turns_.reserve(given_.positions.back() + 1);
    }
    const auto n_kv_heads = static_cast<size_t>(given_.n_kv_heads);
    for (int layer = 0; layer < given_.n_layers; ++layer) {
      const auto heads = std::span(rows_).subspan(head_index(layer, 0), n_kv_heads);
      directions_.freeze(layer, heads);
      layers_.push_back({.layer = layer,
                         .heads = heads,
                         .n_sink = policy_.options().n_sink,
                         .n_positions = given_.positions.back() + 1,
                         .attention = attention_,
                         .queries = &queries_,
                         .moments = &moments_,
                         .rotation = &rotation_,
                         .turns = &turns_,
                         .key_directions = &directions_,
                         .ordinal = layer});
    }
  }

  void score(CaseResult& result) {
    result.scores.resize(static_cast<size_t>(n_heads()) * n_rows());
    for_heads([&](int layer, int kv_head, Scratch& scratch) {
      policy_.scorer()->score(
          layers_[static_cast<size_t>(layer)], kv_head, scratch,
          std::span(result.scores).subspan(head_index(layer, kv_head) * n_rows(), n_rows()));
    });
    result.nan_scores =
        std::ranges::count_if(result.scores, [](float score) { return std::isnan(score); });
  }

  void choose(CaseResult& result) {
    policy::Choice choice;
    choice.wants_scores = true;
    const bool is_cut = policy_.choose(layers_, parallel_, choice);
    result.final_scores = result.scores;
    result.kept.assign(result.scores.size(), is_cut ? 0 : 1);
    result.n_kept.assign(static_cast<size_t>(n_heads()), given_.n_rows);
    for (size_t head = 0; is_cut && head < choice.kept.size(); ++head) {
      result.n_kept[head] = std::ssize(choice.kept[head]);
      std::ranges::copy(choice.final_scores[head],
                        result.final_scores.begin() + static_cast<std::ptrdiff_t>(head * n_rows()));
      for (const int slot : choice.kept[head]) {
        result.kept[head * n_rows() + static_cast<size_t>(slot)] = 1;
      }
    }
    if (policy_.merges()) {
      merge(choice, is_cut, result);
    }
  }

  void merge(const policy::Choice& choice, bool is_cut, CaseResult& result) {
    result.values.resize(result.scores.size() * dim());
    for_heads([&](int layer, int kv_head, Scratch& scratch) {
      const size_t head = head_index(layer, kv_head);
      if (is_cut) {
        merge_lost_rows(policy_, layers_[static_cast<size_t>(layer)], kv_head, choice.kept[head],
                        choice.folds_of(head), /*is_copied=*/false, scratch, cache_);
      }
      const kernels::RowVectors values = kernels::values_of(cache_.rows(layer, kv_head));
      constexpr float kOnce = 1;
      for (int row = 0; row < given_.n_rows; ++row) {
        const size_t at = (head * n_rows() + static_cast<size_t>(row)) * dim();
        kernels::weighted_sum(values, {&row, 1}, {&kOnce, 1},
                              std::span(result.values).subspan(at, dim()), scratch);
      }
    });
  }

  const Case& given_;
  policy::Policy policy_;
  policy::Needs needs_;
  cache::Cache cache_;
  kernels::AttendShape attention_;
  kernels::QueryWindow queries_;
  kernels::QueryMoments moments_;
  policy::KeyDirections directions_;
  kernels::Rotation rotation_;
  kernels::TurnTable turns_;
  kernels::ParallelFor parallel_;
  std::vector<Scratch> scratch_;           // [n_threads]
  std::vector<cache::HeadRows> rows_;      // [n_layers, n_kv_heads]
  std::vector<policy::LayerView> layers_;  // [n_layers]
};

}  // namespace

CaseResult score_case(const Case& given, policy::Policy policy, int n_threads) {
  WINNOW_CHECK(!policy.is_unlimited() && given.n_rows > 0);
  const std::string problem = missing(given, policy);
  if (!problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "policy '" + policy.spec() + "' " + problem);
  }
  return CaseScorer(given, std::move(policy), n_threads).run();
}

}  // namespace winnow::engine
