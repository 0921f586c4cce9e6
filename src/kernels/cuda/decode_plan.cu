// Planning a token's attention, and starting it.

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/blocks.h"
#include "kernels/cuda/attend_decode.cuh"

namespace winnow::kernels::cuda {
namespace {

constexpr int kPlanThreads = 256;
constexpr int kMostParts = 2048;

// The first row of [0, n) whose position is at least `pos`, or n.
__device__ int first_at(const int32_t* positions, int n, int pos) {
  int low = 0;
  int high = n;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (positions[middle] < pos) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The slots from `first` on that are visible, in order, to head.slots. By all threads of a block; returns how many.
__device__ int note_visible(const DecodeHead& head, int first) {
  __shared__ int n_of_warps[kPlanThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  int n = 0;
  for (int base = first; base < head.n; base += kPlanThreads) {
    const int slot = base + thread;
    const bool is_visible = slot < head.n && head.hidden[slot] == cache::kVisible;
    const unsigned visible = __ballot_sync(kAllLanes, is_visible);
    if (lane == 0) {
      n_of_warps[warp] = __popc(visible);
    }
    __syncthreads();
    int at = n + __popc(visible & ((1U << lane) - 1));
    for (int i = 0; i < kPlanThreads / 32; ++i) {
      at += i < warp ? n_of_warps[i] : 0;
      n += n_of_warps[i];
    }
    if (is_visible) {
      head.slots[at] = slot;
    }
    __syncthreads();
  }
  return n;
}

// The parts of every head.
//
// Mapping: block = one head, thread = one part. Limited by its launch, or where a layer has a window by 15 dependent reads; once a
// token for all layers.
__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(int head_dim, size_t row_bytes, int group, int n_kv_heads, int n_passes,
                const DecodeHead* heads, int n_parts, DecodeParts plan) {
  const DecodeHead head = heads[blockIdx.x];
  const int thread = static_cast<int>(threadIdx.x);
  const int first = head.swa_window > 0
                        ? first_at(head.positions, head.n, first_visible(head.pos, head.swa_window))
                        : 0;
  const bool has_hidden = head.hidden != nullptr;
  const int n = has_hidden ? note_visible(head, first) : head.n - first;
  const int length = decode_part_length(n, n_kv_heads);
  const int n_filled = (n + length - 1) / length;
  for (int part = thread; part < n_parts; part += kPlanThreads) {
    const int begin = part * length;
    const size_t offset = has_hidden ? 0 : static_cast<size_t>(first + begin) * row_bytes;
    for (int pass = 0; pass < n_passes; ++pass) {
      const int first_query = group * pass / n_passes;
      const int n_queries = group * (pass + 1) / n_passes - first_query;
      plan.parts[static_cast<size_t>(part) * plan.n_columns + blockIdx.x * n_passes + pass] = {
          .keys = head.keys + offset,
          .values = head.values + offset,
          .slots = has_hidden ? head.slots + begin : nullptr,
          .q = head.q + first_query * head_dim,
          .out = head.out + first_query * head_dim,
          .n_rows = max(min(n - begin, length), 0),
          .n_queries = static_cast<int16_t>(n_queries),
          .n_filled = static_cast<int16_t>(n_filled),
          .rank = static_cast<int16_t>(part),
          .has_nonfinite_values = static_cast<int16_t>(head.has_nonfinite_values ? 1 : 0),
          .first_sum = static_cast<int32_t>(blockIdx.x) * group + first_query};
    }
  }
  for (int pass = thread; pass < n_passes; pass += kPlanThreads) {
    plan.n_done[blockIdx.x * n_passes + pass] = 0;
  }
}

int passes_of(int group) {
  return (group + kMostQueries - 1) / kMostQueries;
}

// Queries of the fullest pass.
int queries_of_pass(int group) {
  return (group + passes_of(group) - 1) / passes_of(group);
}

// Where the plan's memory is cut.
struct Sizes {
  size_t parts, n_done, partials, sums;

  size_t all() const { return parts + n_done + partials + sums; }
};

Sizes sizes_of(const DecodeShape& shape, int most_heads, int most_attended, int most_parts) {
  const auto passes = static_cast<size_t>(passes_of(shape.gqa_group_size));
  const auto n_parts = static_cast<size_t>(most_parts);
  const size_t columns = static_cast<size_t>(most_heads) * passes;
  const auto round_up = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
  return {.parts = round_up(columns * n_parts * sizeof(DecodePart)),
          .n_done = round_up(columns * sizeof(int)),
          .partials = round_up(static_cast<size_t>(most_attended) * passes * n_parts *
                               partial_floats(padded_queries(queries_of_pass(shape.gqa_group_size)),
                                              shape.format.head_dim) *
                               sizeof(float)),
          .sums = round_up(static_cast<size_t>(most_heads) *
                           static_cast<size_t>(shape.gqa_group_size) * sizeof(WeightSum))};
}

void check_shape(const DecodeShape& shape, int most_rows) {
  check_attended(shape.format);
  WINNOW_CHECK(shape.gqa_group_size >= 1 && shape.n_kv_heads >= 1);
  if (most_rows > kMostParts * kMaxPartLength) {
    throw Error(ErrorCode::kUnsupported,
                std::to_string(most_rows) +
                    " rows in a head are more than attention on the GPU takes; at most " +
                    std::to_string(kMostParts * kMaxPartLength) + " are allowed");
  }
}

DecodeParts cut(std::byte* memory, const Sizes& sizes, int n_columns, int most_parts) {
  return {
      .parts = reinterpret_cast<DecodePart*>(memory),
      .n_done = reinterpret_cast<int*>(memory + sizes.parts),
      .partials = reinterpret_cast<float*>(memory + sizes.parts + sizes.n_done),
      .sums = reinterpret_cast<WeightSum*>(memory + sizes.parts + sizes.n_done + sizes.partials),
      .n_columns = n_columns,
      .most_parts = most_parts};
}

auto start_function(int head_dim) {
  switch (head_dim) {
    case 64:
      return &start_decode_64;
    case 80:
      return &start_decode_80;
    case 96:
      return &start_decode_96;
    case 128:
      return &start_decode_128;
    default:
      return &start_decode_256;
  }
}

}  // namespace

void check_attended(const RowFormat& format) {
  check_head_dim(format.head_dim);
  if (format.key_type != format.value_type || format.key_type == cache::RowType::kF32) {
    throw Error(ErrorCode::kUnsupported,
                std::string("rows with keys in ") + row_type_name(format.key_type) +
                    " and values in " + row_type_name(format.value_type) +
                    " have no attention kernel on the GPU; those with both in f16 or both in bf16 "
                    "have");
  }
}

DecodePlan::DecodePlan(const DecodeShape& shape, int most_heads, int most_attended, int most_rows)
    : shape_(shape),
      most_heads_(most_heads),
      most_attended_(most_attended),
      most_parts_((check_shape(shape, most_rows), most_decode_parts(most_rows, shape.n_kv_heads))),
      n_passes_(passes_of(shape.gqa_group_size)),
      buffer_(sizes_of(shape, most_heads, most_attended, most_parts_).all()) {}

void DecodePlan::prepare(const DecodeHead* heads, int n_heads, int most_rows,
                         const Stream& stream) {
  n_parts_ = most_decode_parts(most_rows, shape_.n_kv_heads);
  part_length_ = decode_part_length(most_rows, shape_.n_kv_heads);
  WINNOW_CHECK(n_heads <= most_heads_ && n_parts_ <= most_parts_);
  n_heads_ = n_heads;
  if (n_heads == 0) {
    return;
  }
  const Sizes sizes = sizes_of(shape_, most_heads_, most_attended_, most_parts_);
  plan_kernel<<<static_cast<unsigned>(n_heads), kPlanThreads, 0, stream.get()>>>(
      shape_.format.head_dim, shape_.format.key_bytes(), shape_.gqa_group_size, shape_.n_kv_heads,
      n_passes_, heads, n_parts_, cut(buffer_.data(), sizes, n_heads * n_passes_, most_parts_));
  check(cudaGetLastError(), "planning attention");
}

const WeightSum* DecodePlan::sums() const {
  return cut(buffer_.data(), sizes_of(shape_, most_heads_, most_attended_, most_parts_), 0, 0).sums;
}

void DecodePlan::attend(int first, int n, const Stream& stream) const {
  WINNOW_CHECK(first >= 0 && n >= 0 && n <= most_attended_ && first + n <= n_heads_);
  if (n == 0) {
    return;
  }
  const Sizes sizes = sizes_of(shape_, most_heads_, most_attended_, most_parts_);
  start_function(shape_.format.head_dim)(
      cut(buffer_.data(), sizes, n_heads_ * n_passes_, most_parts_),
      {.type = shape_.format.key_type,
       .n_queries = queries_of_pass(shape_.gqa_group_size),
       .first_column = first * n_passes_,
       .n_columns = n * n_passes_,
       .n_parts = n_parts_,
       .part_length = part_length_,
       .scale = shape_.scale,
       .stream = stream.get()});
}

}  // namespace winnow::kernels::cuda
