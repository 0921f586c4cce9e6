#include "engine/step_graph.h"

#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "engine/feed.h"

namespace winnow::engine {
namespace {

constexpr size_t kNodesPerLayer = 64;
constexpr size_t kOtherNodes = 32;
// Descriptions of graphs that are kept. Enough for one model and some chunk sizes; prompts of every length, and batches
// of every number of sequences, would add up.
constexpr size_t kMaxGraphBytes = size_t{12} << 20;

}  // namespace

StepGraphs::StepGraphs(const model::Model& model, int n_ctx, kernels::StepContext& step,
                       kernels::EndAlignedAttention& end_aligned,
                       const kernels::CpuBackend& backend)
    : model_(model),
      n_ctx_(n_ctx),
      end_aligned_(end_aligned),
      buffer_type_(backend.buffer_type()),
      allocator_(ggml_gallocr_new(buffer_type_)) {
  for (int layer = 0; layer < model.hyper().n_layers; ++layer) {
    ops_.push_back({.step = &step, .layer = layer, .swa_window = model.hyper().swa_window(layer)});
  }
}

StepGraph& StepGraphs::get(const GraphShape& shape) {
  const auto found = graphs_.find(shape);
  if (found != graphs_.end()) {
    return found->second;
  }
  const size_t bytes_before = buffer_bytes();
  StepGraph graph = build(shape);
  ++n_built_;
  if (!ggml_gallocr_alloc_graph(allocator_.get(), graph.graph)) {
    graphs_.clear();
    kept_bytes_ = 0;
    allocator_.reset(ggml_gallocr_new(buffer_type_));
    throw Error(ErrorCode::kResourceExhausted, "no memory for the compute buffer of " +
                                                   std::to_string(shape.n_tokens) + " tokens (" +
                                                   format_bytes(measure(shape)) +
                                                   "); a smaller batch (-b) needs less");
  }
  // All graphs share one buffer; when it had to grow, those that were placed in the old one are gone.
  const size_t graph_bytes = ggml_get_mem_size(graph.context.get());
  if (buffer_bytes() != bytes_before || kept_bytes_ + graph_bytes > kMaxGraphBytes) {
    graphs_.clear();
    kept_bytes_ = 0;
  }
  kept_bytes_ += graph_bytes;
  return graphs_.emplace(shape, std::move(graph)).first->second;
}

size_t StepGraphs::measure(const GraphShape& shape) {
  const StepGraph graph = build(shape);
  const ggml_gallocr_ptr trial(ggml_gallocr_new(buffer_type_));
  size_t bytes = 0;
  ggml_gallocr_reserve_n_size(trial.get(), graph.graph, nullptr, nullptr, &bytes);
  return bytes;
}

size_t StepGraphs::buffer_bytes() const {
  return ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

StepGraph StepGraphs::build(const GraphShape& shape) {
  const model::Hyperparameters& hyper = model_.hyper();
  const size_t n_nodes = kNodesPerLayer * static_cast<size_t>(shape.n_layers) + kOtherNodes;
  const ggml_init_params params{
      .mem_size = n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false),
      .mem_buffer = nullptr,
      .no_alloc = true};
  StepGraph step;
  step.context.reset(ggml_init(params));
  ggml_context* const ctx = step.context.get();
  step.graph = ggml_new_graph_custom(ctx, n_nodes, false);
  if (shape.n_layers > 0 && shape.part != LayerPart::kFromAttend) {
    step.positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, shape.n_tokens);
    ggml_set_input(step.positions);
  }
  ggml_tensor* attended_residual = nullptr;
  ggml_tensor* attention_input = nullptr;
  const model::GraphBuilder builder{
      .ctx = ctx,
      .hyper = hyper,
      .weights = is_prompt_class(shape.n_tokens) ? model_.prompt_weights() : model_.weights(),
      .positions = step.positions,
      .n_ctx = n_ctx_,
      .attended_residual = shape.compares_residual ? &attended_residual : nullptr,
      .attention_input = shape.is_observed ? &attention_input : nullptr};

  ggml_tensor* x = nullptr;  // the residual stream [n_embd, n_tokens]
  if (shape.first_layer == 0 && shape.n_layers > 0) {
    step.tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, shape.n_tokens);
    ggml_set_input(step.tokens);
    x = model::embed(builder, step.tokens);
  } else {
    step.residual = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, hyper.n_embd, shape.n_tokens);
    ggml_set_input(step.residual);
    x = step.residual;
  }
  if (shape.part == LayerPart::kUpToAppend) {
    add_up_to_append(builder, shape, x, step);
    return step;
  }
  if (shape.part == LayerPart::kFromAttend) {
    add_from_attend(builder, shape, x, step);
    return step;
  }
  for (int layer = shape.first_layer; layer < shape.first_layer + shape.n_layers; ++layer) {
    kernels::LayerOps* const ops = &ops_[static_cast<size_t>(layer)];
    const model::Projections qkv = model_.family().before_attention(builder, layer, x);
    ggml_tensor* const appended = kernels::build_append(ctx, ops, qkv.k, qkv.v);
    // Who observes finds the rows in the cache; nothing reads the node, so it has to be named.
    if (shape.is_observed) {
      ggml_build_forward_expand(step.graph, appended);
      ggml_build_forward_expand(
          step.graph, kernels::build_observe(ctx, ops, qkv.q, qkv.k, qkv.v, attention_input));
    }
    if (shape.attends_chunks) {  // likewise
      ggml_build_forward_expand(step.graph, appended);
      ggml_build_forward_expand(step.graph, kernels::build_attend_chunks(ctx, ops, qkv.q));
    }
    ggml_tensor* const attended = kernels::build_attend(ctx, ops, qkv.q, appended);
    ggml_tensor* const before = x;
    x = model_.family().after_attention(builder, layer, x, attended);
    if (shape.compares_residual) {
      ggml_build_forward_expand(step.graph,
                                kernels::build_compare(ctx, ops, before, attended_residual));
    }
  }
  step.output = shape.has_logits ? model::logits(builder, x) : x;
  ggml_set_output(step.output);
  ggml_build_forward_expand(step.graph, step.output);
  return step;
}

void StepGraphs::add_up_to_append(const model::GraphBuilder& builder, const GraphShape& shape,
                                  ggml_tensor* x, StepGraph& step) {
  kernels::LayerOps* const ops = &ops_[static_cast<size_t>(shape.first_layer)];
  const model::Projections qkv = model_.family().before_attention(builder, shape.first_layer, x);
  if (shape.is_observed) {
    ggml_build_forward_expand(step.graph, kernels::build_observe(builder.ctx, ops, qkv.q, qkv.k,
                                                                 qkv.v, *builder.attention_input));
  }
  step.queries = qkv.q;
  step.values = qkv.v;
  for (ggml_tensor* const output : {step.queries, step.values}) {
    ggml_set_output(output);
    ggml_build_forward_expand(step.graph, output);
  }
  ggml_build_forward_expand(step.graph, kernels::build_append(builder.ctx, ops, qkv.k, qkv.v));
}

void StepGraphs::add_from_attend(const model::GraphBuilder& builder, const GraphShape& shape,
                                 ggml_tensor* x, StepGraph& step) {
  const model::Hyperparameters& hyper = model_.hyper();
  const auto input = [&](int n_heads) {
    ggml_tensor* const tensor =
        ggml_new_tensor_3d(builder.ctx, GGML_TYPE_F32, hyper.head_dim, n_heads, shape.n_tokens);
    ggml_set_input(tensor);
    return tensor;
  };
  step.queries = input(hyper.n_heads);
  step.values = input(hyper.n_kv_heads);
  ggml_tensor* const attended =
      kernels::build_end_aligned(builder.ctx, &end_aligned_, step.queries, step.values);
  step.output = model_.family().after_attention(builder, shape.first_layer, x, attended);
  ggml_set_output(step.output);
  ggml_build_forward_expand(step.graph, step.output);
}

}  // namespace winnow::engine
