#include "engine/device_runner.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/kernel_choice.h"

namespace winnow::engine {
namespace {

constexpr size_t kNodesPerPiece = 128;
constexpr size_t kMaxPieces = 1024;  // that are kept; prompts of every length would add up
constexpr int kLeastRows = 64;       // of the output matrix at once

size_t weight_bytes(const model::Weights& weights) {
  return weights.mapped_bytes() + weights.expanded_bytes();
}

std::byte* address(const ggml_tensor* tensor) {
  return static_cast<std::byte*>(tensor->data);
}

// What the host does of a policy, from copies of what is on the GPU; empty where it does nothing.
std::string host_work(const policy::Policy& policy) {
  const policy::Needs needs = policy.needs();
  if (needs.query_moments) {
    return "counting the moments of queries";
  }
  if (needs.residual_similarity) {
    return "comparing the residual stream";
  }
  const bool reads_rows =
      !policy.is_unlimited() && (needs.keys || needs.values || needs.static_scores() ||
                                 needs.column_mass || needs.n_queries > 0);
  return reads_rows && policy.formula() == nullptr ? "choosing rows" : "";
}

}  // namespace

void load_on_gpu(model::Model& model) {
  kernels::check_gpu();
  const size_t n_bytes = weight_bytes(model.weights());
  const kernels::DeviceMemoryLimit limit = kernels::device_memory_limit();
  if (n_bytes > limit.free_bytes) {
    throw Error(ErrorCode::kResourceExhausted,
                "the weights take " + format_bytes(n_bytes) + " of GPU memory, and " +
                    format_bytes(limit.free_bytes) + " are free; -ngl 0 runs the model on the CPU");
  }
  model.load_on(kernels::gpu_buffer_type());
}

void check_gathered_on_gpu(const policy::Policy& policy) {
  if (kernels::chosen_kernels() == kernels::KernelChoice::kRequire && !host_work(policy).empty()) {
    throw Error(ErrorCode::kUnsupported,
                "policy '" + policy.spec() + "' leaves " + host_work(policy) +
                    " to the host, which --kernels require does not allow; auto does");
  }
  const policy::Needs needs = policy.needs();
  const std::pair<bool, std::string_view> missing[] = {
      {needs.replay.is_wanted(), "needs a replay of documents, which there is not on a GPU yet"},
      {needs.notes,
       "notes what it finds beside each row, which there is no place for on a GPU yet"},
      {policy.page_rule().is_wanted(), "reads pages of rows, which there is not on a GPU yet"},
      {policy.changes_keys(), "changes keys that stay, which there is no kernel for on a GPU yet"},
      {needs.chunk_attention.is_wanted(),
       "needs attention in chunks, which there is not on a GPU yet"},
      {policy.is_contiguous(), "needs contiguous positions, which there are not on a GPU yet"},
  };
  for (const auto& [is_needed, what] : missing) {
    if (is_needed) {
      throw Error(ErrorCode::kUnsupported, "policy '" + policy.spec() + "' " + std::string(what) +
                                               "; -ngl 0 runs on the CPU");
    }
  }
}

DeviceRunner::DeviceRunner(const model::Model& model, const kernels::AttendShape& attention,
                           int n_batch, int n_ctx, kernels::ParallelFor& parallel)
    : model_(model),
      attention_(attention),
      n_most_(std::max(padded_rows(n_batch), kLeastRows)),
      n_ctx_(n_ctx),
      allocator_(ggml_gallocr_new(gpu_.buffer_type())),
      parallel_(parallel),
      rotation_(model.rotation(n_ctx)) {
  WINNOW_CHECK(model.is_on_device());
  make_buffers();
}

DeviceRunner::~DeviceRunner() {
  gpu_.wait();  // what is under way reads memory that goes now
}

void DeviceRunner::make_buffers() {
  constexpr size_t kBuffers = 16;
  descriptions_.reset(ggml_init(
      {.mem_size = kBuffers * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  const model::Hyperparameters& hyper = model_.hyper();
  const auto make = [&](int64_t n) {
    return ggml_new_tensor_2d(descriptions_.get(), GGML_TYPE_F32, n, n_most_);
  };
  positions_ = ggml_new_tensor_1d(descriptions_.get(), GGML_TYPE_I32, n_most_);
  for (ggml_tensor*& residual : residuals_) {
    residual = make(hyper.n_embd);
  }
  queries_ = make(int64_t{hyper.head_dim} * hyper.n_heads);
  keys_ = make(int64_t{hyper.head_dim} * hyper.n_kv_heads);
  values_ = make(int64_t{hyper.head_dim} * hyper.n_kv_heads);
  attended_ = make(int64_t{hyper.head_dim} * hyper.n_heads);
  compared_ = make(hyper.n_embd);
  memory_.reset(ggml_backend_alloc_ctx_tensors_from_buft(descriptions_.get(), gpu_.buffer_type()));
  if (!memory_) {
    throw Error(ErrorCode::kResourceExhausted,
                "no GPU memory for what " + std::to_string(n_most_) +
                    " tokens leave between layers; a smaller batch (-b) needs less");
  }
  ggml_backend_buffer_clear(memory_.get(), 0);  // padding is read, too
}

std::shared_ptr<cache::RemoteRows> DeviceRunner::make_rows(const cache::CacheShape& shape) {
  if (!step_) {
    step_ = kernels::make_device_step(attention_, shape);
    row_type_ = shape.key_type;
  }
  WINNOW_CHECK(shape.key_type == row_type_ && shape.value_type == row_type_);
  return step_->make_rows(shape);
}

ggml_tensor* DeviceRunner::view(ggml_context* ctx, ggml_tensor* buffer, int n_tokens) const {
  ggml_tensor* const tensor = buffer == positions_
                                  ? ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_tokens)
                                  : ggml_new_tensor_2d(ctx, GGML_TYPE_F32, buffer->ne[0], n_tokens);
  ggml_backend_tensor_alloc(memory_.get(), tensor, buffer->data);
  return tensor;
}

void DeviceRunner::leave(ggml_context* ctx, ggml_cgraph* graph, ggml_tensor* result,
                         ggml_tensor* buffer) const {
  ggml_tensor* node = result;  // that computes it
  while (node->view_src != nullptr) {
    node = node->view_src;
  }
  const bool is_whole = node->op != GGML_OP_NONE && node->data == nullptr &&
                        ggml_nelements(node) == ggml_nelements(result) &&
                        ggml_is_contiguous(node) && ggml_is_contiguous(result);
  if (is_whole) {  // there is no need for a copy
    ggml_backend_tensor_alloc(memory_.get(), node, buffer->data);
    ggml_set_output(node);
    ggml_build_forward_expand(graph, result);
    return;
  }
  const int64_t n_tokens = ggml_nelements(result) / buffer->ne[0];
  ggml_build_forward_expand(graph,
                            ggml_cpy(ctx, result, view(ctx, buffer, static_cast<int>(n_tokens))));
}

DeviceRunner::Piece DeviceRunner::build(const PieceShape& shape) const {
  const ggml_init_params params{.mem_size = kNodesPerPiece * ggml_tensor_overhead() +
                                            ggml_graph_overhead_custom(kNodesPerPiece, false),
                                .mem_buffer = nullptr,
                                .no_alloc = true};
  Piece piece;
  piece.context.reset(ggml_init(params));
  ggml_context* const ctx = piece.context.get();
  piece.graph = ggml_new_graph_custom(ctx, kNodesPerPiece, false);
  ggml_tensor* attended_residual = nullptr;
  const model::GraphBuilder builder{
      .ctx = ctx,
      .hyper = model_.hyper(),
      .weights = model_.device_weights(),
      .positions = view(ctx, positions_, shape.n_tokens),
      .n_ctx = n_ctx_,
      .attended_residual = shape.compares ? &attended_residual : nullptr};
  const bool follows_layer = shape.after >= 0;
  int layer = follows_layer ? shape.after : std::max(shape.before, 0);  // whose residual comes in
  ggml_tensor* x = view(ctx, residual_before(layer), shape.n_tokens);
  if (follows_layer) {
    x = model_.family().after_attention(builder, shape.after, x,
                                        view(ctx, attended_, shape.n_tokens));
    ++layer;
  }
  if (shape.compares) {
    leave(ctx, piece.graph, attended_residual, compared_);
  }
  if (shape.has_logits) {
    piece.output = model::logits(builder, x);
    ggml_set_output(piece.output);
    ggml_build_forward_expand(piece.graph, piece.output);
  } else if (follows_layer) {
    leave(ctx, piece.graph, x, residual_before(layer));
  }
  if (shape.before >= 0) {
    const model::Projections qkv = model_.family().before_attention(builder, shape.before, x);
    leave(ctx, piece.graph, qkv.q, queries_);
    leave(ctx, piece.graph, qkv.k, keys_);
    leave(ctx, piece.graph, qkv.v, values_);
  }
  gpu_.check_supported(piece.graph);
  return piece;
}

DeviceRunner::Piece& DeviceRunner::get(const PieceShape& shape) {
  const auto found = pieces_.find(shape);
  if (found != pieces_.end()) {
    return found->second;
  }
  const size_t bytes_before = ggml_gallocr_get_buffer_size(allocator_.get(), 0);
  Piece piece = build(shape);
  if (!ggml_gallocr_alloc_graph(allocator_.get(), piece.graph)) {
    pieces_.clear();
    allocator_.reset(ggml_gallocr_new(gpu_.buffer_type()));
    throw Error(ErrorCode::kResourceExhausted, "no GPU memory for the graphs of " +
                                                   std::to_string(shape.n_tokens) +
                                                   " tokens; a smaller batch (-b) needs less");
  }
  // All pieces share one buffer; when it had to grow, those that were placed in the old one are gone.
  if (ggml_gallocr_get_buffer_size(allocator_.get(), 0) != bytes_before ||
      pieces_.size() >= kMaxPieces) {
    pieces_.clear();
  }
  ++n_placed_;
  return pieces_.emplace(shape, std::move(piece)).first->second;
}

void DeviceRunner::prepare(std::span<const PieceShape> shapes) {
  const auto is_placed = [this](const PieceShape& shape) { return pieces_.contains(shape); };
  while (!std::ranges::all_of(shapes, is_placed)) {
    for (const PieceShape& shape : shapes) {
      get(shape);
    }
  }
}

void DeviceRunner::embed(std::span<const Token> tokens) {
  const auto n_tokens = static_cast<int>(tokens.size());
  Lookup& lookup = lookups_[n_tokens];
  if (lookup.graph == nullptr) {
    constexpr size_t kNodes = 16;
    lookup.context.reset(ggml_init(
        {.mem_size = kNodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(kNodes, false),
         .mem_buffer = nullptr,
         .no_alloc = true}));
    ggml_context* const ctx = lookup.context.get();
    lookup.tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_tokens);
    ggml_set_input(lookup.tokens);
    const model::GraphBuilder builder{.ctx = ctx,
                                      .hyper = model_.hyper(),
                                      .weights = model_.weights(),
                                      .positions = nullptr,
                                      .n_ctx = n_ctx_};
    lookup.embeddings = model::embed(builder, lookup.tokens);
    ggml_set_output(lookup.embeddings);
    lookup.graph = ggml_new_graph_custom(ctx, kNodes, false);
    ggml_build_forward_expand(lookup.graph, lookup.embeddings);
    lookup.allocator.reset(ggml_gallocr_new(cpu_.buffer_type()));
    if (!ggml_gallocr_alloc_graph(lookup.allocator.get(), lookup.graph)) {
      lookups_.erase(n_tokens);
      throw Error(ErrorCode::kResourceExhausted,
                  "no memory for the embeddings of " + std::to_string(n_tokens) + " tokens");
    }
  }
  ggml_backend_tensor_set(lookup.tokens, tokens.data(), 0, tokens.size_bytes());
  cpu_.compute(lookup.graph);
  step_->write(residual_before(0)->data, lookup.embeddings->data, ggml_nbytes(lookup.embeddings));
}

std::vector<DeviceRunner::PieceShape> DeviceRunner::begin(const Chunk& chunk, int first_layer,
                                                          int n_layers, bool has_logits) {
  const auto n_tokens = static_cast<int>(chunk.tokens.size());
  WINNOW_CHECK(n_tokens <= n_most_);
  const bool compares = std::ranges::any_of(chunk.slices, [](const kernels::Slice& slice) {
    return slice.is_prompt && slice.similarity != nullptr;
  });
  std::vector<PieceShape> shapes;
  for (int i = 0; i < n_layers; ++i) {
    const int layer = first_layer + i;
    shapes.push_back({.after = i == 0 ? -1 : layer - 1,
                      .before = layer,
                      .n_tokens = n_tokens,
                      .compares = compares && i > 0});
  }
  shapes.push_back({.after = first_layer + n_layers - 1,
                    .before = -1,
                    .n_tokens = n_tokens,
                    .has_logits = has_logits,
                    .compares = compares});
  prepare(shapes);
  std::vector<kernels::DeviceSlice> slices;
  for (const kernels::Slice& slice : chunk.slices) {
    slices.push_back({.cache = slice.cache,
                      .first_token = slice.first_token,
                      .n_tokens = slice.n_tokens,
                      .first_pos = slice.first_pos,
                      .is_prompt = slice.is_prompt,
                      .first_rotation = slice.first_rotation,
                      .queries = slice.queries,
                      .mass_decay = slice.mass_decay});
    for (int layer = first_layer; slice.queries != nullptr && layer < first_layer + n_layers;
         ++layer) {
      slice.queries->note(layer, slice.n_tokens, slice.first_pos, slice.first_rotation);
    }
  }
  step_->write(positions_->data, chunk.rotations.data(), chunk.rotations.size() * sizeof(int32_t));
  step_->begin(slices, first_layer, n_layers,
               {.queries = static_cast<const float*>(queries_->data),
                .keys = static_cast<const float*>(keys_->data),
                .values = static_cast<const float*>(values_->data),
                .attended = static_cast<float*>(attended_->data)});
  return shapes;
}

// One after the other: what ggml starts waits for what attention has started, and the other way round.
void DeviceRunner::submit(const Chunk& chunk, std::span<const PieceShape> shapes) {
  step_->record(gpu_.go_event());
  for (const PieceShape& shape : shapes) {
    gpu_.wait_for_go();
    gpu_.start(get(shape).graph);
    step_->wait_for(gpu_.mark_done());
    if (shape.compares) {
      compare(chunk, shape.after);
    }
    if (shape.before >= 0) {
      step_->attend(shape.before);
      count_queries(chunk, shape.before);
      step_->record(gpu_.go_event());
    }
  }
}

void DeviceRunner::count_queries(const Chunk& chunk, int layer) {
  const auto is_counted = [layer](const kernels::Slice& slice) {
    return slice.moments != nullptr && slice.moments->watches(layer);
  };
  if (std::ranges::none_of(chunk.slices, is_counted)) {
    return;
  }
  const auto token_floats = static_cast<size_t>(queries_->ne[0]);
  const auto head_dim = static_cast<size_t>(attention_.head_dim);
  const size_t n_rot = rotation_.n_rot();
  host_queries_.resize(static_cast<size_t>(chunk.n_tokens) * token_floats);
  step_->read(host_queries_.data(), queries_->data, host_queries_.size() * sizeof(float));
  for (const kernels::Slice& slice : chunk.slices) {
    if (!is_counted(slice)) {
      continue;
    }
    std::vector<float> turns(static_cast<size_t>(slice.n_tokens) * n_rot);
    for (int i = 0; i < slice.n_tokens; ++i) {
      kernels::turns_at(rotation_, slice.first_rotation + i,
                        std::span(turns).subspan(static_cast<size_t>(i) * n_rot, n_rot));
    }
    const size_t scratch_floats = kernels::QueryMoments::scratch_floats(attention_.head_dim);
    std::vector<Scratch> scratch(static_cast<size_t>(parallel_.n_threads()));
    parallel_.run(attention_.n_heads, [&](int head, int thread) {
      Scratch& of_thread = scratch[static_cast<size_t>(thread)];
      const Scratch::Frame frame(of_thread);
      slice.moments->add(
          layer, head,
          {.q = host_queries_.data() + static_cast<size_t>(slice.first_token) * token_floats +
                static_cast<size_t>(head) * head_dim,
           .stride = token_floats,
           .n_tokens = slice.n_tokens,
           .first_pos = slice.first_pos,
           .turns = turns.data()},
          rotation_, of_thread.take<float>(scratch_floats).data());
    });
  }
}

void DeviceRunner::compare(const Chunk& chunk, int layer) {
  const auto n_embd = static_cast<size_t>(model_.hyper().n_embd);
  const ggml_tensor* const residuals[] = {residual_before(layer), compared_};
  for (size_t i = 0; i < 2; ++i) {
    host_residuals_[i].resize(static_cast<size_t>(chunk.n_tokens) * n_embd);
    step_->read(host_residuals_[i].data(), residuals[i]->data,
                host_residuals_[i].size() * sizeof(float));
  }
  for (const kernels::Slice& slice : chunk.slices) {
    for (int i = 0; slice.similarity != nullptr && i < slice.n_tokens; ++i) {
      const size_t at = static_cast<size_t>(slice.first_token + i) * n_embd;
      slice.similarity->add(
          layer, kernels::cosine(host_residuals_[0].data() + at, host_residuals_[1].data() + at,
                                 static_cast<int>(n_embd)));
    }
  }
}

void DeviceRunner::hold(std::span<float> residual) {
  held_memory_.reset(ggml_backend_buft_alloc_buffer(gpu_.buffer_type(), residual.size_bytes()));
  if (!held_memory_) {
    throw Error(ErrorCode::kResourceExhausted, "no GPU memory for the residual stream (" +
                                                   format_bytes(residual.size_bytes()) + ")");
  }
  held_ = residual;
}

void DeviceRunner::fetch(std::span<float> part_of_residual) {
  step_->read(part_of_residual.data(), held_at(part_of_residual.data()),
              part_of_residual.size_bytes());
}

std::byte* DeviceRunner::held_at(const float* residual) const {
  WINNOW_CHECK(is_held(residual));
  return static_cast<std::byte*>(ggml_backend_buffer_get_base(held_memory_.get())) +
         static_cast<size_t>(residual - held_.data()) * sizeof(float);
}

void DeviceRunner::drop() {
  held_ = {};
  held_memory_.reset();
}

bool DeviceRunner::is_held(const float* residual) const {
  return residual >= held_.data() && residual < held_.data() + held_.size();
}

void DeviceRunner::run_layers(const Chunk& chunk, int first_layer, int n_layers, float* residual,
                              bool is_wanted) {
  const size_t n_bytes =
      chunk.tokens.size() * static_cast<size_t>(model_.hyper().n_embd) * sizeof(float);
  const bool is_on_device = is_held(residual);
  std::byte* const held = is_on_device ? held_at(residual) : nullptr;
  ggml_tensor* const before = residual_before(first_layer);
  if (first_layer == 0) {
    embed(chunk.tokens);
  } else if (is_on_device) {
    step_->copy(address(before), held, n_bytes);
  } else {
    step_->write(before->data, residual, n_bytes);
  }
  submit(chunk, begin(chunk, first_layer, n_layers, false));
  const ggml_tensor* const after = residual_before(first_layer + n_layers);
  if (is_on_device) {
    step_->copy(held, address(after), n_bytes);
  } else if (is_wanted) {
    step_->read(residual, after->data, n_bytes);
  }
}

void DeviceRunner::run_decode(const Chunk& chunk, std::span<float> logits) {
  embed(chunk.tokens);
  const std::vector<PieceShape> shapes = begin(chunk, 0, model_.hyper().n_layers, true);
  const bool is_read = std::ranges::any_of(
      chunk.slices, [](const kernels::Slice& slice) { return slice.moments != nullptr; });
  if (is_read) {
    submit(chunk, shapes);
  } else {
    step_->replay(n_placed_, [&] { submit(chunk, shapes); });
  }
  step_->read(logits.data(), get(shapes.back()).output->data, logits.size_bytes());
}

void DeviceRunner::run_output(std::span<const float> residual, std::span<float> logits) {
  const auto n_rows =
      static_cast<int>(residual.size() / static_cast<size_t>(model_.hyper().n_embd));
  const PieceShape shape{.n_tokens = n_rows, .has_logits = true};
  prepare({&shape, 1});
  step_->write(residual_before(0)->data, residual.data(), residual.size_bytes());
  submit({}, {&shape, 1});
  step_->read(logits.data(), get(shape).output->data, logits.size_bytes());
}

size_t DeviceRunner::rows_bytes(const cache::CacheShape& shape, bool is_layer_major) {
  constexpr size_t kGranule = size_t{2} << 20;
  const auto bytes = [&](int n_layers, int n_rows) {
    const size_t of_row = shape.key_bytes() + shape.value_bytes() + sizeof(int32_t) +
                          sizeof(float) + shape.mass_bytes();
    return static_cast<size_t>(n_layers) * static_cast<size_t>(shape.n_kv_heads) *
               static_cast<size_t>(cache::Cache::most_slots(n_rows)) * of_row +
           2 * kGranule;
  };
  const int n_kept =
      shape.kept_rows > 0 ? std::min(shape.kept_rows, shape.max_rows) : shape.max_rows;
  return bytes(shape.n_layers, n_kept) +
         (n_kept < shape.max_rows ? bytes(is_layer_major ? 1 : shape.n_layers, shape.max_rows) : 0);
}

size_t DeviceRunner::choosing_bytes(const cache::CacheShape& shape, const policy::Needs& needs,
                                    bool is_layer_major) const {
  const auto n_heads = static_cast<size_t>(attention_.n_heads);
  const auto n_queries = static_cast<size_t>(needs.n_queries);
  const auto n_rows = static_cast<size_t>(cache::Cache::most_slots(shape.max_rows));
  const size_t n_together = is_layer_major ? 1 : static_cast<size_t>(shape.n_layers);
  const size_t queries = static_cast<size_t>(shape.n_layers) * n_queries * n_heads *
                         static_cast<size_t>(shape.head_dim) * sizeof(float);
  // By positions, however many rows are left of them.
  const size_t sums = n_heads * n_queries *
                      (static_cast<size_t>(n_ctx_) / size_t{kernels::kSumsPart} + 1) * 2 *
                      sizeof(float);
  // Queries as tensor cores take them: three parts at most, in rows of whole panels, and their sums.
  const auto n_most = static_cast<size_t>(n_most_);
  constexpr size_t kImage = 128;  // lanes that are rounded up to
  const size_t of_lane = 3 * ((static_cast<size_t>(shape.head_dim) + 63) / 64) * 128 + 16;
  const size_t images = n_heads * ((needs.column_mass ? n_most + kImage : 0) * (of_lane + 8) +
                                   (n_queries > 0 ? n_queries + kImage : 0) * of_lane);
  const size_t attended =
      n_queries > 0 || needs.column_mass ? n_heads * n_rows * sizeof(int64_t) : 0;
  const size_t chosen = static_cast<size_t>(shape.n_kv_heads) * n_rows * 2 * sizeof(float);
  return queries + sums + images + n_together * (attended + chosen);
}

size_t DeviceRunner::measure(int n_prompt, bool is_layer_major) {
  size_t largest = 0;
  const int n_tokens = padded_rows(std::clamp(n_prompt, 1, n_most_));
  for (const PieceShape& shape :
       {PieceShape{
            .after = 0, .before = std::min(1, model_.hyper().n_layers - 1), .n_tokens = n_tokens},
        PieceShape{.after = 0, .n_tokens = kLeastRows, .has_logits = true}}) {
    const Piece piece = build(shape);
    const ggml_gallocr_ptr trial(ggml_gallocr_new(gpu_.buffer_type()));
    size_t n_bytes = 0;
    ggml_gallocr_reserve_n_size(trial.get(), piece.graph, nullptr, nullptr, &n_bytes);
    largest = std::max(largest, n_bytes);
  }
  const size_t residual = is_layer_major
                              ? static_cast<size_t>(n_prompt + n_most_) *
                                    static_cast<size_t>(model_.hyper().n_embd) * sizeof(float)
                              : 0;
  return ggml_backend_buffer_get_size(memory_.get()) + largest + residual;
}

}  // namespace winnow::engine
