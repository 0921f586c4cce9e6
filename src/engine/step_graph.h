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
#include "model/model.h"

namespace winnow::engine {

// Layers [first_layer, first_layer + n_layers) over n_tokens tokens. A graph from layer 0 starts with token ids, others
// with the residual stream; one with logits ends after the output matrix. No layers at all: the output matrix alone.
struct GraphShape {
  int first_layer = 0;
  int n_layers = 0;
  int n_tokens = 0;
  bool has_logits = false;
  bool compares_residual = false;  // what goes into attention and what comes out
  bool is_observed = false;        // queries, keys and values are shown

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads it
  auto operator<=>(const GraphShape&) const = default;
};

struct StepGraph {
  ggml_context_ptr context;
  ggml_cgraph* graph = nullptr;
  ggml_tensor* tokens = nullptr;     // input [n_tokens] int32, in graphs from layer 0
  ggml_tensor* residual = nullptr;   // input [n_embd, n_tokens], in all others
  ggml_tensor* positions = nullptr;  // input [n_tokens] int32; null without layers
  ggml_tensor* output = nullptr;     // [n_embd, n_tokens], or the logits [n_vocab, n_tokens]
};

class StepGraphs {
 public:
  // `n_ctx`: most positions of a sequence.
  StepGraphs(const model::Model& model, int n_ctx, kernels::StepContext& step,
             const kernels::CpuBackend& backend);

  // Ready to have its inputs set, all of them, and to be computed. Valid until the next call of get. Throws
  // resource_exhausted.
  StepGraph& get(const GraphShape& shape);

  // Bytes the buffer of such a graph takes, without allocating it.
  size_t measure(const GraphShape& shape);
  size_t buffer_bytes() const;
  int n_built() const { return n_built_; }  // by get: shapes that were new, or not kept

 private:
  StepGraph build(const GraphShape& shape);

  const model::Model& model_;
  int n_ctx_;
  std::vector<kernels::LayerOps> ops_;  // [n_layers]; the nodes point at them
  ggml_backend_buffer_type_t buffer_type_;
  ggml_gallocr_ptr allocator_;
  std::map<GraphShape, StepGraph> graphs_;
  size_t kept_bytes_ = 0;  // their descriptions
  int n_built_ = 0;
};

}  // namespace winnow::engine
