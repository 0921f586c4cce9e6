// One layer of one sequence whose rows lie on the GPU, fed with random activations: what tests of the device's step share.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/gpu.h"
#include "kernels/cuda/device.h"
#include "kernels/device_step.h"
#include "oracle/attention_oracle.h"

namespace winnow::test {

using kernels::cuda::Array;

struct Case {
  int head_dim, n_heads, n_kv_heads;
  cache::RowType type;
  int swa_window = 0;
};

inline constexpr Case kCases[] = {
    {64, 9, 3, cache::RowType::kF16},       {64, 14, 2, cache::RowType::kBf16, 100},
    {80, 6, 2, cache::RowType::kBf16},      {96, 4, 1, cache::RowType::kF16, 40},
    {128, 12, 2, cache::RowType::kF16},     {128, 8, 8, cache::RowType::kBf16},
    {256, 4, 1, cache::RowType::kF16, 300}, {256, 6, 3, cache::RowType::kBf16}};

inline std::string name_of(const Case& c) {
  return std::to_string(c.head_dim) + " " + std::to_string(c.n_heads) + "/" +
         std::to_string(c.n_kv_heads) + " " + cache::row_type_name(c.type);
}

inline constexpr int kMostTokens = 1500;  // of a call
inline constexpr int kMostRows = 6000;

// What a token brings: a function of its position alone, so that any cut into calls is of the same tokens.
inline std::vector<float> activations(int pos, size_t n, uint32_t seed, float size) {
  std::mt19937 random(seed * 1'000'003 + static_cast<uint32_t>(pos));
  std::normal_distribution<float> normal(0, size);
  std::vector<float> floats(n);
  std::ranges::generate(floats, [&] { return normal(random); });
  return floats;
}

// What is gathered while attention is computed.
struct Gathered {
  bool mass = false;
  int n_queries = 0;
  float decay = 1;
};

// One layer of one sequence.
class DeviceSequence {
 public:
  explicit DeviceSequence(const Case& c, const Gathered& gathered = {})
      : c_(c),
        gathered_(gathered),
        attention_{.n_heads = c.n_heads,
                   .n_kv_heads = c.n_kv_heads,
                   .head_dim = c.head_dim,
                   .scale = 1 / std::sqrt(static_cast<float>(c.head_dim))},
        shape_{.n_layers = 1,
               .n_kv_heads = c.n_kv_heads,
               .head_dim = c.head_dim,
               .key_type = c.type,
               .value_type = c.type,
               .max_rows = kMostRows,
               .stores_scores = true,
               .stores_mass = gathered.mass,
               .kept_rows = 700,
               .is_remote = true,
               .swa_windows = {c.swa_window}},
        step_(kernels::make_device_step(attention_, shape_)),
        rows_(step_->make_rows(shape_)),
        queries_({.n_heads = c.n_heads,
                  .head_dim = c.head_dim,
                  .n_queries = gathered.n_queries,
                  .is_watched = {true}}),
        cache_(shape_, rows_),
        q_(kMostTokens * heads_floats(c.n_heads)),
        k_(kMostTokens * heads_floats(c.n_kv_heads)),
        v_(kMostTokens * heads_floats(c.n_kv_heads)),
        out_(kMostTokens * heads_floats(c.n_heads)) {}

  cache::Cache& cache() { return cache_; }
  kernels::DeviceRows& rows() { return *rows_; }
  int n_fed() const { return n_fed_; }
  int infinite_at = -1;  // the position whose values are infinite

  // Feeds the next n tokens; returns [n, n_heads, head_dim].
  std::vector<float> feed(int n, bool is_prompt) {
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    const auto add = [](std::vector<float>& to, const std::vector<float>& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    for (int pos = n_fed_; pos < n_fed_ + n; ++pos) {
      add(q, queries_of(pos));
      add(k, activations(pos, heads_floats(c_.n_kv_heads), 2, 1));
      std::vector<float> values = activations(pos, heads_floats(c_.n_kv_heads), 3, 1);
      if (pos == infinite_at) {
        std::ranges::fill(values, std::numeric_limits<float>::infinity());
      }
      add(v, values);
    }
    kernels::cuda::copy_to_device(q_.data(), q.data(), q.size() * sizeof(float));
    kernels::cuda::copy_to_device(k_.data(), k.data(), k.size() * sizeof(float));
    kernels::cuda::copy_to_device(v_.data(), v.data(), v.size() * sizeof(float));
    const kernels::DeviceSlice slice{.cache = &cache_,
                                     .first_token = 0,
                                     .n_tokens = n,
                                     .first_pos = n_fed_,
                                     .is_prompt = is_prompt,
                                     .queries = gathered_.n_queries > 0 ? &queries_ : nullptr,
                                     .mass_decay = gathered_.decay};
    step_->begin(
        {&slice, 1}, 0, 1,
        {.queries = q_.data(), .keys = k_.data(), .values = v_.data(), .attended = out_.data()});
    step_->attend(0);
    std::vector<float> out(q.size());
    step_->read(out.data(), out_.data(), out.size() * sizeof(float));
    n_fed_ += n;
    return out;
  }

  // Tokens in calls of the given size.
  std::vector<float> feed_in(int n, int n_at_once) {
    std::vector<float> all;
    for (int fed = 0; fed < n; fed += n_at_once) {
      const std::vector<float> part = feed(std::min(n_at_once, n - fed), true);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::vector<float> queries_of(int pos) const {
    return activations(pos, heads_floats(c_.n_heads), 1, 1.5F);
  }

  // The rows of a head as they are on the device.
  struct Copy {
    std::vector<std::byte> keys, values;
    cache::HeadRows view;
  };
  Copy copy(int kv_head) {
    Copy of_head{.keys = {}, .values = {}, .view = cache_.rows(0, kv_head)};
    const auto n = static_cast<size_t>(of_head.view.n);
    of_head.keys.resize(n * shape_.key_bytes());
    of_head.values.resize(n * shape_.value_bytes());
    rows_->read(0, kv_head, of_head.view.n, of_head.keys.data(), of_head.values.data());
    of_head.view.keys = of_head.keys.data();
    of_head.view.values = of_head.values.data();
    return of_head;
  }

  // [heads, the most slots of any]
  std::vector<float> scores() {
    std::vector<int> n_slots;
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      n_slots.push_back(cache_.rows(0, kv_head).n);
    }
    const auto stride = static_cast<size_t>(std::ranges::max(n_slots));
    std::vector<float> all(n_slots.size() * stride);
    rows_->read_scores(0, n_slots, stride, all);
    return all;
  }

  // The same of column mass.
  std::vector<int64_t> mass() {
    std::vector<int> n_slots;
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      n_slots.push_back(cache_.rows(0, kv_head).n);
    }
    const auto stride = static_cast<size_t>(std::ranges::max(n_slots));
    std::vector<int64_t> all(n_slots.size() * stride);
    rows_->read_mass(0, n_slots, stride, all);
    return all;
  }

  // What the last n queries attend to, by the device: [n_heads, the most slots of any].
  std::vector<int64_t> window_mass(int n_queries) {
    std::vector<cache::HeadRows> rows;
    int stride = 0;
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      rows.push_back(cache_.rows(0, kv_head));
      stride = std::max(stride, rows.back().n);
    }
    std::vector<int64_t> all(static_cast<size_t>(c_.n_heads) * static_cast<size_t>(stride));
    rows_->read_window_mass({.layer = 0, .first_pos = n_fed_ - n_queries, .n_queries = n_queries},
                            rows, static_cast<size_t>(stride), all);
    return all;
  }

  // The softmax weights of a head's rows, summed over the queries of tokens [first_pos, end_pos) of some query heads of its
  // group, in double.
  std::vector<double> plain_mass(int kv_head, int first_pos, int end_pos, int first_head,
                                 int n_heads) {
    const Copy held = copy(kv_head);
    std::vector<double> mass(static_cast<size_t>(held.view.n));
    for (int pos = first_pos; pos < end_pos; ++pos) {
      const std::vector<float> q = queries_of(pos);
      for (int head = first_head; head < first_head + n_heads; ++head) {
        const size_t at =
            (static_cast<size_t>(kv_head) * static_cast<size_t>(attention_.gqa_group_size()) +
             static_cast<size_t>(head)) *
            static_cast<size_t>(c_.head_dim);
        const std::vector<double> weights = oracle::softmax_weights(
            held.view, q.data() + at, pos, static_cast<double>(attention_.scale));
        std::ranges::transform(mass, weights, mass.begin(), std::plus<>());
      }
    }
    return mass;
  }
  int group_size() const { return attention_.gqa_group_size(); }

  // Of tokens that were just fed, whose rows are the last.
  double error_of(const std::vector<float>& out, int first_pos) {
    const auto dim = static_cast<size_t>(c_.head_dim);
    const auto n_heads = static_cast<size_t>(c_.n_heads);
    const size_t n_tokens = out.size() / (n_heads * dim);
    std::vector<Copy> copies;
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      copies.push_back(copy(kv_head));
    }
    double worst = 0;
    for (size_t token = 0; token < n_tokens; token += 1 + token / 7) {
      const int pos = first_pos + static_cast<int>(token);
      const std::vector<float> q = queries_of(pos);
      for (size_t head = 0; head < n_heads; ++head) {
        const auto group = static_cast<size_t>(attention_.gqa_group_size());
        const std::vector<double> expected =
            oracle::attention(copies[head / group].view, q.data() + head * dim, pos,
                              static_cast<double>(attention_.scale), c_.swa_window);
        double largest = 1e-30;
        double off = 0;
        for (size_t d = 0; d < dim; ++d) {
          const double actual = static_cast<double>(out[(token * n_heads + head) * dim + d]);
          largest = std::max(largest, std::abs(expected[d]));
          off = std::isnan(actual) ? std::numeric_limits<double>::infinity()
                                   : std::max(off, std::abs(expected[d] - actual));
        }
        worst = std::max(worst, off / largest);
      }
    }
    return worst;
  }

  // Keeps some of the rows of each head, a different number of each, or hides the others.
  void cut(uint32_t seed, bool hides) {
    std::mt19937 random(seed);
    for (int kv_head = 0; kv_head < c_.n_kv_heads; ++kv_head) {
      const int n = cache_.rows(0, kv_head).n;
      std::vector<int> slots(static_cast<size_t>(n));
      std::iota(slots.begin(), slots.end(), 0);
      std::ranges::shuffle(slots, random);
      slots.resize(1 + random() % static_cast<uint32_t>(n));
      std::ranges::sort(slots);
      if (hides) {
        cache_.hide_others(0, kv_head, slots);
      } else {
        cache_.keep(0, kv_head, slots);
      }
    }
  }

 private:
  size_t heads_floats(int n_heads) const {
    return static_cast<size_t>(n_heads) * static_cast<size_t>(c_.head_dim);
  }

  Case c_;
  Gathered gathered_;
  kernels::AttendShape attention_;
  cache::CacheShape shape_;
  std::unique_ptr<kernels::DeviceStep> step_;
  std::shared_ptr<kernels::DeviceRows> rows_;
  kernels::QueryWindow queries_;
  cache::Cache cache_;
  Array<float> q_, k_, v_, out_;
  int n_fed_ = 0;
};

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b,
                             const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

}  // namespace winnow::test
