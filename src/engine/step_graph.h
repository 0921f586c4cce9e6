// The ggml graphs that steps run: some consecutive layers over some tokens. Built once per shape and reused, since
// the caches' lengths are no part of a graph.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "kernels/cache_ops.h"
#include "kernels/cpu_backend.h"
#include "kernels/end_aligned.h"
#include "model/model.h"

namespace winnow::engine {

// One layer in two graphs, so that its rows can be cut in between.
enum class LayerPart {
  kWhole,
  kUpToAppend,  // outputs the queries and values
  kFromAttend,  // takes them as inputs; attends as EndAlignedAttention does
};

// Layers [first_layer, first_layer + n_layers) over n_tokens tokens. A graph from layer 0 starts with token ids, others
// with the residual stream; one with logits ends after the output matrix. No layers at all: the output matrix alone.
struct GraphShape {
  int first_layer = 0;
  int n_layers = 0;
  int n_tokens = 0;
  bool has_logits = false;
  bool compares_residual = false;  // what goes into attention and what comes out
  bool is_observed = false;        // queries, keys and values are shown
  bool attends_chunks = false;     // attention in chunks is written beside rows
  LayerPart part = LayerPart::kWhole;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads it
  auto operator<=>(const GraphShape&) const = default;
};

struct StepGraph {
  ggml_context_ptr context;
  ggml_cgraph* graph = nullptr;
  ggml_tensor* tokens = nullptr;     // input [n_tokens] int32, in graphs from layer 0
  ggml_tensor* residual = nullptr;   // input [n_embd, n_tokens], in all others
  ggml_tensor* positions = nullptr;  // input [n_tokens] int32; null where no layer begins
  // Of a layer in two parts: [head_dim, n_heads, n_tokens] and [head_dim, n_kv_heads, n_tokens].
  ggml_tensor* queries = nullptr;
  ggml_tensor* values = nullptr;
  // [n_embd, n_tokens], or the logits [n_vocab, n_tokens]; null up to append
  ggml_tensor* output = nullptr;
};

class StepGraphs {
 public:
  // `n_ctx`: most positions of a sequence.
  StepGraphs(const model::Model& model, int n_ctx, kernels::StepContext& step,
             kernels::EndAlignedAttention& end_aligned, const kernels::CpuBackend& backend);

  // Ready to have its inputs set, all of them, and to be computed. Valid until the next call of get. Throws
  // resource_exhausted.
  StepGraph& get(const GraphShape& shape);

  // Bytes the buffer of such a graph takes, without allocating it.
  size_t measure(const GraphShape& shape);
  size_t buffer_bytes() const;
  int n_built() const { return n_built_; }  // by get: shapes that were new, or not kept

 private:
  StepGraph build(const GraphShape& shape);
  // The two parts of a layer, from the residual stream x.
  void add_up_to_append(const model::GraphBuilder& builder, const GraphShape& shape, ggml_tensor* x,
                        StepGraph& step);
  void add_from_attend(const model::GraphBuilder& builder, const GraphShape& shape, ggml_tensor* x,
                       StepGraph& step);

  const model::Model& model_;
  int n_ctx_;
  std::vector<kernels::LayerOps> ops_;  // [n_layers]; the nodes point at them
  kernels::EndAlignedAttention& end_aligned_;
  ggml_backend_buffer_type_t buffer_type_;
  ggml_gallocr_ptr allocator_;
  std::map<GraphShape, StepGraph> graphs_;
  size_t kept_bytes_ = 0;  // their descriptions
  int n_built_ = 0;
};

}  // namespace winnow::engine
