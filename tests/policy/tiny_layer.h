// A layer made of vectors, for tests of policies that need no cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/append.h"
#include "kernels/parallel.h"
#include "policy/policy.h"
#include "policy/scorer.h"
#include "support/random_rows.h"

namespace winnow::policy {

// The rows of one KV head that a policy may look at.
struct TinyHead {
  std::vector<int32_t> positions;  // [n_cached], ascending
  std::vector<float> norms;        // [n_cached] squared key norms; empty: the cache keeps no scores
  std::vector<uint8_t> hidden;     // [n_cached]; empty: none is hidden
  int head_dim = 4;
  std::vector<float> keys = {};    // [n_cached, head_dim]; empty: NaN
  std::vector<float> values = {};  // the same
  std::vector<int64_t> mass = {};  // [n_cached] column mass; empty: the cache keeps none

  // Rows at positions 0 … n-1 with the given squared key norms, and column mass that grows with them.
  static TinyHead with_norms(std::vector<float> norms) {
    TinyHead head{.positions = std::vector<int32_t>(norms.size()), .norms = {}, .hidden = {}};
    std::iota(head.positions.begin(), head.positions.end(), 0);
    for (const float norm : norms) {
      head.mass.push_back(std::isfinite(norm) ? static_cast<int64_t>(norm) << 30 : 0);
    }
    head.norms = std::move(norms);
    return head;
  }

  // Rows at positions 0 … n-1 with the given keys and values [n, head_dim], and the norms that belong to the keys.
  static TinyHead with_rows(int head_dim, std::vector<float> keys, std::vector<float> values) {
    TinyHead head = with_norms(std::vector<float>(keys.size() / static_cast<size_t>(head_dim)));
    head.head_dim = head_dim;
    head.keys = std::move(keys);
    head.values = std::move(values);
    kernels::static_scores(head.rows({}), {}, head.norms);
    return head;
  }

  static TinyHead random(int n, unsigned seed, int head_dim = 8) {
    std::mt19937 random(seed);
    const auto n_elements = static_cast<size_t>(n * head_dim);
    std::vector<float> keys = test::random_floats(random, n_elements);
    return with_rows(head_dim, std::move(keys), test::random_floats(random, n_elements));
  }

  // The rows of this head that are not hidden.
  TinyHead compacted() const {
    TinyHead head{.positions = {}, .norms = {}, .hidden = {}, .head_dim = head_dim};
    const auto dim = static_cast<std::ptrdiff_t>(head_dim);
    for (size_t slot = 0; slot < positions.size(); ++slot) {
      if (hidden.empty() || hidden[slot] == cache::kVisible) {
        const auto first = static_cast<std::ptrdiff_t>(slot) * dim;
        head.positions.push_back(positions[slot]);
        head.norms.push_back(norms[slot]);
        head.keys.insert(head.keys.end(), keys.begin() + first, keys.begin() + first + dim);
        head.values.insert(head.values.end(), values.begin() + first, values.begin() + first + dim);
        if (!mass.empty()) {
          head.mass.push_back(mass[slot]);
        }
      }
    }
    return head;
  }

  // A view of this head; `nans` [n_cached * head_dim] stands in for what it does not have.
  cache::HeadRows rows(std::span<const float> nans) const {
    const auto elements = [&](const std::vector<float>& of) {
      return std::as_bytes(of.empty() ? nans : std::span<const float>(of)).data();
    };
    return {.keys = elements(keys),
            .values = elements(values),
            .positions = positions.data(),
            .scores = norms.empty() ? nullptr : norms.data(),
            .mass = mass.empty() ? nullptr : mass.data(),
            .hidden = hidden.empty() ? nullptr : hidden.data(),
            .n = static_cast<int>(positions.size()),
            .n_hidden = static_cast<int>(std::count_if(hidden.begin(), hidden.end(),
                                                       [](uint8_t each) { return each != 0; })),
            .head_dim = head_dim,
            .key_type = cache::RowType::kF32,
            .value_type = cache::RowType::kF32,
            .has_nonfinite_values = values.empty(),
            .rotations = nullptr};
  }
};

// Queries [n_tokens, n_heads, head_dim] at positions from 0: halves of a head are rotated together, base 10000.
inline std::vector<float> rotated_by_halves(std::vector<float> q, int n_heads, int head_dim) {
  const auto dim = static_cast<size_t>(head_dim);
  const size_t half = dim / 2;
  for (size_t i = 0; i < q.size(); i += dim) {
    const auto pos = static_cast<double>(i / (static_cast<size_t>(n_heads) * dim));
    for (size_t c = 0; c < half; ++c) {
      const double angle = pos * std::pow(10000.0, -2.0 * static_cast<double>(c) / head_dim);
      const auto a = static_cast<double>(q[i + c]);
      const auto b = static_cast<double>(q[i + c + half]);
      q[i + c] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      q[i + c + half] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
  }
  return q;
}

// Gives the rows of a KV head, at positions 0 …, the static scores that they have in chunks (kernels/chunk_attention.h): what the
// group of queries q [n_tokens, n_heads, head_dim] from position 0 on pays to them, of full chunks.
inline void fill_in_chunks(std::span<const float> q, const kernels::AttendShape& shape, int kv_head,
                           const kernels::ChunkAttention& how, TinyHead& head) {
  const int group = shape.gqa_group_size();
  const auto token = static_cast<size_t>(shape.n_heads) * static_cast<size_t>(shape.head_dim);
  const auto n_tokens = static_cast<int>(q.size() / token);
  const cache::HeadRows rows = head.rows({});
  Scratch scratch;
  const std::span<float> memory =
      scratch.take<float>(kernels::chunk_scratch_floats(shape.head_dim));
  std::vector<float> scores(head.norms.size(), std::numeric_limits<float>::quiet_NaN());
  for (int begin = 0; begin + how.length <= n_tokens; begin += how.length) {
    const kernels::ChunkSlots slots = kernels::chunk_slots(rows, begin, how.length);
    std::vector<int64_t> mass(static_cast<size_t>(slots.last - slots.first));
    kernels::add_chunk_attention(rows, slots,
                                 {.q = q.data() + static_cast<size_t>(begin) * token +
                                       static_cast<size_t>(kv_head * group * shape.head_dim),
                                  .token_stride = token,
                                  .n_heads = group,
                                  .n_tokens = how.length},
                                 how.is_scaled ? shape.scale : 1.0F, memory.data(), mass);
    for (size_t i = 0; i < mass.size(); ++i) {
      scores[static_cast<size_t>(slots.first) + i] =
          static_cast<float>(static_cast<double>(mass[i]) / kernels::kMassScale);
    }
  }
  head.norms = scores;
}

// An output projection made of a vector.
struct TinyOutputWeights final : OutputWeights {
  int n_outputs = 0;
  int n_inputs = 0;
  std::vector<float> elements;  // [n_outputs, n_inputs]

  int n_embd() const override { return n_outputs; }
  void read(int /*layer*/, const Part& part, float* to) const override {
    for (int row = part.first_row; row < part.first_row + part.n_rows; ++row) {
      to = std::copy_n(elements.begin() + row * n_inputs + part.first_column, part.n_columns, to);
    }
  }
};

class TinyLayer {
 public:
  explicit TinyLayer(std::vector<TinyHead> heads, int layer = 0)
      : heads_(std::move(heads)), layer_(layer), similarity_(layer + 1) {
    similarity_.add(layer, 1 / (1.0 + layer));
    size_t n_most = 0;
    for (const TinyHead& head : heads_) {
      n_most = std::max(n_most, head.positions.size() * static_cast<size_t>(head.head_dim));
    }
    nans_.assign(n_most, std::numeric_limits<float>::quiet_NaN());
    for (const TinyHead& head : heads_) {
      rows_.push_back(head.rows(nans_));
      if (!head.positions.empty()) {
        n_positions_ = std::max(n_positions_, head.positions.back() + 1);
      }
    }
    if (!heads_.empty()) {
      directions_ = KeyDirections({.n_layers = layer + 1,
                                   .n_kv_heads = static_cast<int>(heads_.size()),
                                   .head_dim = heads_[0].head_dim,
                                   .sample = {.n_keys = 1}});
      directions_.restore(
          layer, std::vector<float>(heads_.size() * static_cast<size_t>(heads_[0].head_dim), 0.5F));
    }
    if (!heads_.empty()) {  // the same query at the last positions
      const int n_queries = std::min(n_positions_, 64);
      const auto n =
          static_cast<size_t>(n_queries) * heads_.size() * static_cast<size_t>(heads_[0].head_dim);
      set_queries(std::vector<float>(n, 1.0F), static_cast<int>(heads_.size()), 64, 0.5F,
                  n_positions_ - n_queries);
    }
  }
  TinyLayer(const TinyLayer&) = delete;
  TinyLayer& operator=(const TinyLayer&) = delete;

  // Queries after rotation [n_tokens, n_heads, head_dim] from first_pos on, of which the last n_queries are remembered, and
  // what q·k is multiplied with.
  void set_queries(std::span<const float> q, int n_heads, int n_queries, float scale,
                   int first_pos = 0) {
    const int head_dim = heads_[0].head_dim;
    attention_ = {.n_heads = n_heads,
                  .n_kv_heads = static_cast<int>(heads_.size()),
                  .head_dim = head_dim,
                  .scale = scale};
    count_queries(q, first_pos);
    queries_ = kernels::QueryWindow(
        {.n_heads = n_heads,
         .head_dim = head_dim,
         .n_queries = n_queries,
         .is_watched = std::vector<bool>(static_cast<size_t>(layer_) + 1, true)});
    const int n_tokens = static_cast<int>(q.size()) / (n_heads * head_dim);
    n_positions_ = first_pos + n_tokens;
    queries_.add(layer_, q.data(), n_tokens, first_pos, first_pos);
    // Columns that are alike for all heads.
    std::mt19937 random(1);
    const int n_outputs = n_heads * head_dim + 3;
    const std::vector<float> columns =
        test::random_floats(random, static_cast<size_t>(n_outputs * head_dim));
    std::vector<float> weights;
    for (int i = 0; i < n_outputs * n_heads; ++i) {
      const auto* const row = columns.data() + i / n_heads * head_dim;
      weights.insert(weights.end(), row, row + head_dim);
    }
    set_output_weights(std::move(weights));
  }

  // weights [n_embd, n_heads * head_dim]
  void set_output_weights(std::vector<float> weights) {
    output_weights_.n_inputs = attention_.n_heads * attention_.head_dim;
    output_weights_.n_outputs = static_cast<int>(weights.size()) / output_weights_.n_inputs;
    output_weights_.elements = std::move(weights);
  }

  // Halves of a head turn together, by a base of 10000.
  static kernels::Rotation rotation(int head_dim) {
    return {.layout = kernels::Rotation::Pairs::kHalves,
            .step = std::pow(10000.0F, -2.0F / static_cast<float>(head_dim)),
            .pairs = std::vector<kernels::Rotation::Pair>(static_cast<size_t>(head_dim / 2))};
  }

  LayerView view(int n_sink = 0) const {
    return {.layer = layer_,
            .heads = rows_,
            .n_sink = n_sink,
            .n_positions = n_positions_,
            .next_rotation = n_positions_,
            .attention = attention_,
            .queries = &queries_,
            .moments = &moments_,
            .similarity = &similarity_,
            .rotation = &rotation_,
            .turns = &turns_,
            .output_weights = &output_weights_,
            .key_directions = &directions_,
            .ordinal = layer_};
  }

  // What the policy keeps of this layer alone [n_kv_heads, n_kept*].
  KeptSlots kept_by(const Policy& policy, int n_threads = 1) const {
    kernels::ParallelFor parallel(n_threads);
    const LayerView layer = view();
    Choice choice;
    return policy.choose({&layer, 1}, parallel, choice) ? choice.kept : KeptSlots{};
  }

  // One head's scores by a method with the given options: [n_cached].
  std::vector<float> scores_by(std::unique_ptr<Scorer> (*make)(OptionReader&),
                               std::vector<GivenOption> options, int n_sink, int kv_head) const {
    OptionReader reader(std::move(options));
    std::vector<float> scores(heads_[static_cast<size_t>(kv_head)].positions.size());
    Scratch scratch;
    make(reader)->score(view(n_sink), kv_head, scratch, scores);
    return scores;
  }

 private:
  void count_queries(std::span<const float> q, int first_pos) {
    const auto dim = static_cast<size_t>(attention_.head_dim);
    const size_t token = static_cast<size_t>(attention_.n_heads) * dim;
    const auto n_tokens = static_cast<int>(q.size() / token);
    rotation_ = rotation(attention_.head_dim);
    turns_ = kernels::TurnTable(rotation_);
    for (const TinyHead& head : heads_) {
      turns_.reserve(head.positions.empty() ? 0 : head.positions.back() + 1);
    }
    std::vector<float> turns(static_cast<size_t>(n_tokens) * rotation_.n_rot());
    for (int i = 0; i < n_tokens; ++i) {
      kernels::turns_at(
          rotation_, first_pos + i,
          std::span(turns).subspan(static_cast<size_t>(i) * rotation_.n_rot(), rotation_.n_rot()));
    }
    moments_ = kernels::QueryMoments(
        {.n_heads = attention_.n_heads,
         .head_dim = attention_.head_dim,
         .is_watched = std::vector<bool>(static_cast<size_t>(layer_) + 1, true)});
    std::vector<float> scratch(kernels::QueryMoments::scratch_floats(attention_.head_dim));
    for (int head = 0; head < attention_.n_heads; ++head) {
      moments_.add(layer_, head,
                   {.q = q.data() + static_cast<size_t>(head) * dim,
                    .stride = token,
                    .n_tokens = n_tokens,
                    .first_pos = first_pos,
                    .turns = turns.data()},
                   rotation_, scratch.data());
    }
  }

  std::vector<TinyHead> heads_;
  std::vector<float> nans_;
  std::vector<cache::HeadRows> rows_;
  int layer_;
  int n_positions_ = 0;
  kernels::AttendShape attention_;
  kernels::QueryWindow queries_;
  kernels::QueryMoments moments_;
  kernels::ResidualSimilarity similarity_;
  kernels::Rotation rotation_;
  kernels::TurnTable turns_;
  TinyOutputWeights output_weights_;
  KeyDirections directions_;  // the same for all heads
};

}  // namespace winnow::policy
