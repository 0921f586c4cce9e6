#include "calibrate/query_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"

namespace winnow::calibrate {
namespace {

constexpr size_t kTokensAtOnce = 32;  // stay in the first cache while products are made of them

size_t n_heads(const policy::FilterShape& shape) {
  return static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_heads);
}

size_t n_kv_heads(const policy::FilterShape& shape) {
  return static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads);
}

}  // namespace

QueryStatistics::QueryStatistics(Shape shape)
    : shape_(std::move(shape)),
      dim_(static_cast<size_t>(shape_.heads.head_dim)),
      padded_(kernels::moment_dim(shape_.heads.head_dim)),
      n_tokens_(static_cast<size_t>(shape_.n_blocks)),
      query_sums_(static_cast<size_t>(shape_.n_blocks) * n_heads(shape_.heads) * padded_),
      products_(static_cast<size_t>(n_halves()) * n_heads(shape_.heads) *
                kernels::product_doubles(padded_)),
      key_sums_(n_kv_heads(shape_.heads) * dim_),
      samples_(n_heads(shape_.heads) * shape_.sampled.size() * dim_),
      n_shown_(static_cast<size_t>(shape_.heads.n_layers)),
      scratch_(static_cast<size_t>(shape_.n_threads)),
      nonfinite_(static_cast<int64_t>(n_heads(shape_.heads))) {
  WINNOW_CHECK(shape_.n_blocks == 1 || shape_.n_blocks % 2 == 0);
  for (Scratch& scratch : scratch_) {
    scratch.block.resize(kTokensAtOnce * padded_);
    scratch.row.resize(dim_);
    scratch.turns.resize(dim_);
  }
}

size_t QueryStatistics::bytes(const Shape& shape) {
  const auto dim = static_cast<size_t>(shape.heads.head_dim);
  const size_t padded = kernels::moment_dim(shape.heads.head_dim);
  const auto n_blocks = static_cast<size_t>(shape.n_blocks);
  const size_t n_halves = shape.n_blocks > 1 ? 2 : 1;
  return n_heads(shape.heads) *
             ((n_blocks * padded + n_halves * kernels::product_doubles(padded)) * sizeof(double) +
              shape.sampled.size() * dim * sizeof(float)) +
         n_kv_heads(shape.heads) * dim * sizeof(double);
}

size_t QueryStatistics::head_index(int layer, int head) const {
  return static_cast<size_t>(layer) * static_cast<size_t>(shape_.heads.n_heads) +
         static_cast<size_t>(head);
}

double* QueryStatistics::sum(int block, int layer, int head) {
  return query_sums_.data() +
         (static_cast<size_t>(block) * n_heads(shape_.heads) + head_index(layer, head)) * padded_;
}

void QueryStatistics::begin_passage(int block) {
  WINNOW_CHECK(block >= 0 && block < shape_.n_blocks);
  block_ = block;
  std::ranges::fill(n_shown_, 0);
}

void QueryStatistics::end_passage(int64_t n_tokens) {
  n_tokens_[static_cast<size_t>(block_)] += n_tokens;
  n_seen_ += n_tokens;
  const int64_t first = nonfinite_;
  if (first < static_cast<int64_t>(n_heads(shape_.heads))) {
    throw Error(ErrorCode::kBadData,
                "layer " + std::to_string(first / shape_.heads.n_heads) + ", head " +
                    std::to_string(first % shape_.heads.n_heads) +
                    ": a query has elements that are not finite; no filter can be made of those");
  }
}

int64_t QueryStatistics::n_tokens() const {
  return std::accumulate(n_tokens_.begin(), n_tokens_.end(), int64_t{0});
}

void QueryStatistics::take_sample(int layer, int head, int64_t index,
                                  std::span<const float> row) noexcept {
  const auto at = std::ranges::lower_bound(shape_.sampled, index);
  if (at == shape_.sampled.end() || *at != index) {
    return;
  }
  const size_t n = static_cast<size_t>(at - shape_.sampled.begin());
  std::ranges::copy(
      row, samples_.begin() + static_cast<std::ptrdiff_t>(
                                  (head_index(layer, head) * shape_.sampled.size() + n) * dim_));
}

// Rows of one head, `stride` floats apart; of tokens that are turned back where the frame is before rotation.
void QueryStatistics::add_rows(int layer, int head, const float* rows, size_t stride, int n_rows,
                               int64_t first_index, const kernels::LayerActivations* activations,
                               Scratch& scratch) noexcept {
  double* const to_sum = sum(block_, layer, head);
  double* const to_products =
      products_.data() +
      (static_cast<size_t>(half_of(block_)) * n_heads(shape_.heads) + head_index(layer, head)) *
          kernels::product_doubles(padded_);
  const bool turns_back = activations != nullptr && shape_.frame != policy::FilterFrame::kPost;
  size_t n_block = 0;
  for (int i = 0; i < n_rows; ++i) {
    const float* row = rows + static_cast<size_t>(i) * stride;
    if (turns_back) {
      const kernels::Rotation& rotation = *activations->rotation;
      const std::span<float> turns(scratch.turns.data(), rotation.n_rot());
      kernels::turns_at(rotation, activations->first_rotation + i, turns);
      kernels::before_rotation(rotation, turns, row, scratch.row);
      row = scratch.row.data();
    }
    bool is_finite = true;
    double* const to = scratch.block.data() + n_block * padded_;
    for (size_t c = 0; c < dim_; ++c) {
      is_finite &= std::isfinite(row[c]);
      to[c] = static_cast<double>(row[c]);
    }
    if (!is_finite) {
      const auto index = static_cast<int64_t>(head_index(layer, head));
      int64_t first = nonfinite_;
      while (index < first && !nonfinite_.compare_exchange_weak(first, index)) {
      }
      return;
    }
    if (!shape_.sampled.empty()) {
      take_sample(layer, head, first_index + i, {row, dim_});
    }
    if (++n_block == kTokensAtOnce || i + 1 == n_rows) {
      kernels::add_moments(scratch.block.data(), n_block, padded_, to_sum, to_products);
      n_block = 0;
    }
  }
}

void QueryStatistics::observe(const kernels::LayerActivations& activations, int thread,
                              int n_threads) noexcept {
  const kernels::AttendShape& shape = activations.shape;
  Scratch& scratch = scratch_[static_cast<size_t>(thread)];
  const int64_t first_index = n_seen_ + activations.first_pos;
  for (int head = thread; head < shape.n_heads; head += n_threads) {
    add_rows(activations.layer, head, activations.query(0, head),
             static_cast<size_t>(shape.n_heads) * dim_, activations.n_tokens, first_index,
             &activations, scratch);
  }
  for (int kv_head = thread; kv_head < shape.n_kv_heads; kv_head += n_threads) {
    double* const to = key_sums_.data() + (static_cast<size_t>(activations.layer) *
                                               static_cast<size_t>(shape.n_kv_heads) +
                                           static_cast<size_t>(kv_head)) *
                                              dim_;
    for (int token = 0; token < activations.n_tokens; ++token) {
      const float* key = activations.key(token, kv_head);
      if (shape_.frame == policy::FilterFrame::kPre) {
        const kernels::Rotation& rotation = *activations.rotation;
        const std::span<float> turns(scratch.turns.data(), rotation.n_rot());
        kernels::turns_at(rotation, activations.first_rotation + token, turns);
        kernels::before_rotation(rotation, turns, key, scratch.row);
        key = scratch.row.data();
      }
      for (size_t c = 0; c < dim_; ++c) {
        to[c] += static_cast<double>(key[c]);
      }
    }
  }
}

void QueryStatistics::add(int layer, int head, std::span<const float> rows) {
  add_rows(layer, head, rows.data(), dim_, static_cast<int>(rows.size() / dim_), n_seen_, nullptr,
           scratch_[0]);
}

void QueryStatistics::mean(int layer, int head, int block, std::span<double> mean) const {
  WINNOW_CHECK(mean.size() == dim_ && n_tokens(block) > 0);
  const double* const from =
      query_sums_.data() +
      (static_cast<size_t>(block) * n_heads(shape_.heads) + head_index(layer, head)) * padded_;
  for (size_t c = 0; c < dim_; ++c) {
    mean[c] = from[c] / static_cast<double>(n_tokens(block));
  }
}

void QueryStatistics::second_moment(int layer, int head, int half, std::span<double> second) const {
  WINNOW_CHECK(second.size() == dim_ * dim_);
  std::ranges::fill(second, 0.0);
  int64_t n = 0;
  for (int block = 0; block < shape_.n_blocks; ++block) {
    n += half < 0 || half_of(block) == half ? n_tokens(block) : 0;
  }
  WINNOW_CHECK(n > 0);
  for (int each = 0; each < n_halves(); ++each) {
    if (half >= 0 && each != half) {
      continue;
    }
    const double* row = products_.data() + (static_cast<size_t>(each) * n_heads(shape_.heads) +
                                            head_index(layer, head)) *
                                               kernels::product_doubles(padded_);
    for (size_t i = 0; i < dim_; ++i) {
      const size_t first = i / kernels::kMomentStrip * kernels::kMomentStrip;
      for (size_t j = i; j < dim_; ++j) {
        second[i * dim_ + j] += row[j - first] / static_cast<double>(n);
      }
      row += padded_ - first;
    }
  }
  for (size_t i = 0; i < dim_; ++i) {
    for (size_t j = 0; j < i; ++j) {
      second[i * dim_ + j] = second[j * dim_ + i];
    }
  }
}

void QueryStatistics::mean_key(int layer, int kv_head, std::span<double> mean) const {
  WINNOW_CHECK(mean.size() == dim_);
  const double* const from = key_sums_.data() + (static_cast<size_t>(layer) *
                                                     static_cast<size_t>(shape_.heads.n_kv_heads) +
                                                 static_cast<size_t>(kv_head)) *
                                                    dim_;
  for (size_t c = 0; c < dim_; ++c) {
    mean[c] = from[c] / static_cast<double>(n_tokens());
  }
}

std::span<const float> QueryStatistics::sample(int layer, int head) const {
  const size_t n = shape_.sampled.size() * dim_;
  return std::span(samples_).subspan(head_index(layer, head) * n, n);
}

std::vector<std::span<double>> QueryStatistics::sums() {
  return {query_sums_, products_, key_sums_};
}

}  // namespace winnow::calibrate
