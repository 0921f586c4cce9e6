#include "kernels/device_step.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "kernels/cuda/attend_prompt.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_rows.h"

namespace winnow::kernels::cuda {
namespace {

// An array that the host fills and kernels read, at the same address while it need not grow.
template <class T>
class Table {
 public:
  void clear() { of_host_.clear(); }
  void push_back(const T& element) { of_host_.push_back(element); }
  size_t size() const { return of_host_.size(); }
  const T* data() const { return of_device_ ? of_device_->data() : nullptr; }

  void upload(const Stream& stream) {
    if (of_host_.empty()) {
      return;
    }
    if (!of_device_ || of_device_->size() < of_host_.size()) {
      stream.wait();  // the old one may be in use
      of_device_.reset();
      of_device_.emplace(2 * of_host_.size());
    }
    cuda::upload(of_device_->data(), of_host_.data(), of_host_.size() * sizeof(T), stream);
  }

 private:
  std::vector<T> of_host_;
  std::optional<Array<T>> of_device_;
};

// Rows that decoding adds before it is recorded anew where it adds up column mass.
constexpr int kMassRowsStep = 1024;

class CudaStep : public DeviceStep {
 public:
  CudaStep(const AttendShape& attention, const cache::CacheShape& shape)
      : shape_{.format = {shape.head_dim, shape.key_type, shape.value_type},
               .gqa_group_size = attention.gqa_group_size(),
               .n_kv_heads = attention.n_kv_heads,
               .scale = attention.scale},
        swa_windows_(shape.swa_windows) {
    check_available();
    check_attended(shape_.format);
  }

  std::shared_ptr<DeviceRows> make_rows(const cache::CacheShape& shape) override {
    return std::make_shared<CudaRows>(shape, shape_, stream_);
  }

  void begin(std::span<const DeviceSlice> slices, int first_layer, int n_layers,
             const DeviceActivations& activations) override;
  void attend(int layer) override;

  void replay(uint64_t key, const std::function<void()>& submit) override;

  void copy(void* to, const void* from, size_t bytes) override {
    copy_on_device(to, from, bytes, stream_);
  }
  void write(void* to, const void* from, size_t bytes) override {
    upload(to, from, bytes, stream_);
  }
  void read(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()),
          "copying from the GPU");
    stream_.wait();
  }
  void wait_for(void* event) override {
    check(cudaStreamWaitEvent(stream_.get(), static_cast<cudaEvent_t>(event), 0),
          "waiting for an event");
  }
  void record(void* event) override {
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_.get()), "recording an event");
  }
  void wait() override { stream_.wait(); }

 private:
  // Where a layer's heads are in the tables.
  struct Layer {
    int first_append, first_prompt, first_decode, first_prompt_mass, first_decode_mass;
  };

  // What kernels are launched with, beside what lies in device memory.
  struct Launches {
    uint64_t key = 0;
    const void* appends = nullptr;
    const void* decodes = nullptr;
    const void* marks = nullptr;
    const void* visible = nullptr;
    const void* masses = nullptr;
    const void* images = nullptr;
    size_t n_heads = 0;
    size_t n_masses = 0;
    int n_mass_rows = 0;
    bool remembers = false;
    DecodePlan::Launch plan = {};

    bool operator==(const Launches&) const = default;
  };

  void enter(const DeviceSlice& slice, int layer, int kv_head);
  void describe(const DeviceSlice& slice, int layer, int kv_head, const uint8_t*& marks);
  void plan_room(size_t n_heads);
  void plan_decoding();
  size_t n_lanes() const {  // the most of a head
    return static_cast<size_t>(most_tokens_) * static_cast<size_t>(shape_.gqa_group_size);
  }

  DecodeShape shape_;
  std::vector<int> swa_windows_;  // [n_layers], or empty
  Stream stream_;
  DeviceActivations activations_{};
  int first_layer_ = 0;
  std::vector<Layer> layers_;  // one more than there are
  int most_tokens_ = 0;
  int most_rows_ = 0;     // of a head that a generated token attends to
  Table<uint8_t> marks_;  // visibility of the heads that have hidden rows, one after the other
  std::optional<Array<int32_t>> visible_;  // slots of such heads, likewise, that the plan notes
  Table<AppendHead> appends_;
  Table<PromptHead> prompts_;
  Table<DecodeHead> decodes_;
  Table<MassHead> prompt_masses_;
  Table<MassHead> decode_masses_;
  std::optional<Array<WeightSum>> prompt_sums_;  // of a layer's heads, [., most_tokens, group]
  std::optional<Array<std::byte>> images_;       // of a layer's queries
  int n_prompt_mass_rows_ = 0;                   // the most of a head
  int n_decode_mass_rows_ = 0;                   // the same, in steps of kMassRowsStep
  bool remembers_ = false;                       // queries
  std::optional<DecodePlan> plan_;
  size_t most_planned_ = 0;        // heads of all layers
  int n_planned_rows_ = 0;         // of a head, that the plan has room for
  Launches last_;                  // of replay()
  std::optional<Graph> recorded_;  // with these
};

void CudaStep::begin(std::span<const DeviceSlice> slices, int first_layer, int n_layers,
                     const DeviceActivations& activations) {
  activations_ = activations;
  first_layer_ = first_layer;
  layers_.clear();
  marks_.clear();
  appends_.clear();
  prompts_.clear();
  decodes_.clear();
  prompt_masses_.clear();
  decode_masses_.clear();
  n_prompt_mass_rows_ = 0;
  n_decode_mass_rows_ = 0;
  remembers_ = false;
  most_tokens_ = 0;
  most_rows_ = 0;
  for (const DeviceSlice& slice : slices) {
    WINNOW_CHECK(slice.n_tokens > 0 && (slice.is_prompt || slice.n_tokens == 1));
    auto& rows = static_cast<CudaRows&>(*slice.cache->remote());
    rows.settle();
    if (!slice.is_prompt) {
      rows.give_back_zones();  // which prompts have left
    }
    if (slice.queries != nullptr) {
      rows.watch_queries(slice.queries->shape());
      remembers_ = true;
    }
    most_tokens_ = std::max(most_tokens_, slice.n_tokens);
  }
  const auto for_each_head = [&](int layer, auto&& body) {
    for (const DeviceSlice& slice : slices) {
      for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
        body(slice, layer, kv_head);
      }
    }
  };
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    for_each_head(layer, [this](const DeviceSlice& slice, int of_layer, int kv_head) {
      enter(slice, of_layer, kv_head);
    });
  }
  marks_.upload(stream_);
  reserve(visible_, marks_.size());
  // Weights are known by what they sum up to, which has its place before tables are written.
  const auto has_mass = [&](bool is_prompt) {
    return std::ranges::any_of(slices, [is_prompt](const DeviceSlice& slice) {
      return slice.is_prompt == is_prompt && slice.cache->shape().stores_mass;
    });
  };
  const size_t n_heads = slices.size() * static_cast<size_t>(shape_.n_kv_heads);  // of a layer
  if (has_mass(/*is_prompt=*/true)) {
    reserve(prompt_sums_, n_heads * n_lanes());
  }
  if (has_mass(true) || has_mass(false)) {
    reserve(images_, mass_image_bytes(shape_, static_cast<int>(n_heads), most_tokens_,
                                      /*is_window=*/false));
  }
  if (has_mass(/*is_prompt=*/false)) {
    plan_room(n_heads * static_cast<size_t>(n_layers));
  }
  const uint8_t* marks = marks_.data();
  const auto note = [&] {
    layers_.push_back({.first_append = static_cast<int>(appends_.size()),
                       .first_prompt = static_cast<int>(prompts_.size()),
                       .first_decode = static_cast<int>(decodes_.size()),
                       .first_prompt_mass = static_cast<int>(prompt_masses_.size()),
                       .first_decode_mass = static_cast<int>(decode_masses_.size())});
  };
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    note();
    for_each_head(layer, [&](const DeviceSlice& slice, int of_layer, int kv_head) {
      describe(slice, of_layer, kv_head, marks);
    });
  }
  note();
  appends_.upload(stream_);
  prompts_.upload(stream_);
  decodes_.upload(stream_);
  prompt_masses_.upload(stream_);
  decode_masses_.upload(stream_);
  // Before attention is planned, which goes by positions.
  append_positions(appends_.data(), static_cast<int>(appends_.size()), most_tokens_, stream_);
  plan_decoding();
}

// The new rows of a head, in the cache's books.
void CudaStep::enter(const DeviceSlice& slice, int layer, int kv_head) {
  cache::Cache& cache = *slice.cache;
  const cache::Cache::Target target = cache.reserve(layer, kv_head, slice.n_tokens);
  std::iota(target.positions, target.positions + slice.n_tokens, slice.first_pos);
  if (target.rotations != nullptr) {
    std::iota(target.rotations, target.rotations + slice.n_tokens, slice.first_rotation);
  }
  cache.commit(layer, kv_head, slice.n_tokens, {});
  const cache::HeadRows rows = cache.rows(layer, kv_head);
  for (int slot = 0; rows.hidden != nullptr && slot < rows.n; ++slot) {
    marks_.push_back(rows.hidden[slot]);
  }
  most_rows_ = std::max(most_rows_, slice.is_prompt ? 0 : rows.n);
}

// The head in the tables. `marks`: of its rows where some are hidden, and moved on to those of the next such head.
void CudaStep::describe(const DeviceSlice& slice, int layer, int kv_head, const uint8_t*& marks) {
  auto& rows = static_cast<CudaRows&>(*slice.cache->remote());
  const cache::HeadRows held = slice.cache->rows(layer, kv_head);
  const HeadArrays arrays = rows.arrays(layer, kv_head, held.n - slice.n_tokens);
  DeviceCounts* const counts = rows.counts_on_device(layer, kv_head);
  const uint8_t* const hidden = held.hidden == nullptr ? nullptr : marks;
  marks += hidden == nullptr ? 0 : held.n;
  const int window = swa_windows_.empty() ? 0 : swa_windows_[static_cast<size_t>(layer)];
  const size_t group_floats =
      static_cast<size_t>(shape_.gqa_group_size) * static_cast<size_t>(shape_.format.head_dim);
  const size_t at =
      (static_cast<size_t>(slice.first_token) * static_cast<size_t>(shape_.n_kv_heads) +
       static_cast<size_t>(kv_head)) *
      group_floats;
  appends_.push_back({.rows = arrays,
                      .counts = counts,
                      .kv_head = kv_head,
                      .first_token = slice.first_token,
                      .n_tokens = slice.n_tokens,
                      .first_pos = slice.first_pos,
                      .ring = slice.queries != nullptr ? rows.ring(layer) : nullptr,
                      .n_ring = rows.n_ring()});
  const bool has_mass = arrays.mass != nullptr && window == 0;
  WeightSum* prompt_sums = nullptr;
  if (has_mass && slice.is_prompt) {
    const auto of_layer = prompts_.size() - static_cast<size_t>(layers_.back().first_prompt);
    prompt_sums = prompt_sums_->data() + of_layer * n_lanes();
  }
  if (has_mass) {
    const auto of_plan = decodes_.size() * static_cast<size_t>(shape_.gqa_group_size);
    (slice.is_prompt ? prompt_masses_ : decode_masses_)
        .push_back({.keys = arrays.keys,
                    .positions = arrays.positions,
                    .hidden = hidden,
                    .q = activations_.queries + at,
                    .sums = slice.is_prompt ? prompt_sums : plan_->sums() + of_plan,
                    .mass = arrays.mass,
                    .n = held.n,
                    .n_tokens = slice.n_tokens,
                    .first_pos = slice.first_pos,
                    .n_ring = 0,
                    .decay = slice.is_prompt ? 1.0F : slice.mass_decay});
    int& most = slice.is_prompt ? n_prompt_mass_rows_ : n_decode_mass_rows_;
    most = std::max(most, slice.is_prompt
                              ? held.n
                              : (held.n + kMassRowsStep - 1) / kMassRowsStep * kMassRowsStep);
  }
  if (slice.is_prompt) {
    prompts_.push_back({.keys = arrays.keys,
                        .values = arrays.values,
                        .positions = arrays.positions,
                        .hidden = hidden,
                        .n_nonfinite_values = &counts->nonfinite_values,
                        .q = activations_.queries + at,
                        .out = activations_.attended + at,
                        .n = held.n,
                        .n_tokens = slice.n_tokens,
                        .first_pos = slice.first_pos,
                        .swa_window = window,
                        .sums = prompt_sums});
  } else {
    decodes_.push_back(
        {.keys = arrays.keys,
         .values = arrays.values,
         .positions = arrays.positions,
         .hidden = hidden,
         .slots = hidden == nullptr ? nullptr : visible_->data() + (hidden - marks_.data()),
         .q = activations_.queries + at,
         .out = activations_.attended + at,
         .n = held.n,
         .pos = slice.first_pos,
         .swa_window = window,
         .has_nonfinite_values = true});
  }
}

// Has the plan take so many heads of up to most_rows_.
void CudaStep::plan_room(size_t n_heads) {
  if (!plan_ || n_heads > most_planned_ || most_rows_ > n_planned_rows_) {
    stream_.wait();
    plan_.reset();
    most_planned_ = std::max(most_planned_, n_heads);
    constexpr unsigned kMoreRows = 4096;
    n_planned_rows_ = std::max<int>(
        n_planned_rows_,
        static_cast<int>(std::bit_ceil(static_cast<unsigned>(most_rows_) + kMoreRows)));
    plan_.emplace(shape_, static_cast<int>(most_planned_), static_cast<int>(most_planned_),
                  n_planned_rows_);
  }
}

void CudaStep::plan_decoding() {
  const size_t n_heads = decodes_.size();
  if (n_heads == 0) {
    return;
  }
  plan_room(n_heads);
  plan_->prepare(decodes_.data(), static_cast<int>(n_heads), most_rows_, stream_);
}

void CudaStep::attend(int layer) {
  const Layer& first = layers_[static_cast<size_t>(layer - first_layer_)];
  const Layer& end = layers_[static_cast<size_t>(layer - first_layer_ + 1)];
  append_rows(shape_.format, shape_.n_kv_heads, appends_.data() + first.first_append,
              end.first_append - first.first_append, most_tokens_, activations_.keys,
              activations_.values, stream_);
  if (remembers_) {
    cuda::remember_queries(
        static_cast<size_t>(shape_.gqa_group_size) * static_cast<size_t>(shape_.format.head_dim),
        shape_.n_kv_heads, appends_.data() + first.first_append,
        end.first_append - first.first_append, most_tokens_, activations_.queries, stream_);
  }
  attend_prompt(shape_, prompts_.data() + first.first_prompt, end.first_prompt - first.first_prompt,
                most_tokens_, stream_);
  if (end.first_decode > first.first_decode) {
    plan_->attend(first.first_decode, end.first_decode - first.first_decode, stream_);
  }
  const auto add = [&](const Table<MassHead>& masses, int begin, int past, int most_rows) {
    add_mass(shape_,
             {.heads = masses.data() + begin,
              .n = past - begin,
              .most_tokens = most_tokens_,
              .most_rows = most_rows,
              .images = images_ ? images_->data() : nullptr},
             stream_);
  };
  add(prompt_masses_, first.first_prompt_mass, end.first_prompt_mass, n_prompt_mass_rows_);
  add(decode_masses_, first.first_decode_mass, end.first_decode_mass, n_decode_mass_rows_);
}

void CudaStep::replay(uint64_t key, const std::function<void()>& submit) {
  WINNOW_CHECK(prompts_.size() == 0 && plan_);
  const Launches now{.key = key,
                     .appends = appends_.data(),
                     .decodes = decodes_.data(),
                     .marks = marks_.data(),
                     .visible = visible_ ? visible_->data() : nullptr,
                     .masses = decode_masses_.data(),
                     .images = images_ ? images_->data() : nullptr,
                     .n_heads = decodes_.size(),
                     .n_masses = decode_masses_.size(),
                     .n_mass_rows = n_decode_mass_rows_,
                     .remembers = remembers_,
                     .plan = plan_->launch()};
  if (now != last_) {
    last_ = now;
    recorded_.reset();
    submit();
    return;
  }
  if (!recorded_) {
    recorded_.emplace(stream_, submit);
  }
  recorded_->launch(stream_);
}

}  // namespace
}  // namespace winnow::kernels::cuda

namespace winnow::kernels {

std::string why_no_device() {
  return cuda::why_unavailable();
}

DeviceMemoryLimit device_memory_limit() {
  if (!why_no_device().empty()) {
    return {};
  }
  const cuda::DeviceMemory memory = cuda::device_memory();
  return {.free_bytes = memory.free_bytes, .total_bytes = memory.total_bytes};
}

std::unique_ptr<DeviceStep> make_device_step(const AttendShape& attention,
                                             const cache::CacheShape& shape) {
  return std::make_unique<cuda::CudaStep>(attention, shape);
}

}  // namespace winnow::kernels
