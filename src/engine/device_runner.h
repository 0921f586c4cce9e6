// Runs layers on a GPU: ggml's graphs piece by piece, from one layer's attention to the next one's, and attention on rows in device
// memory in between.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/feed.h"
#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "kernels/cpu_backend.h"
#include "kernels/device_step.h"
#include "kernels/gpu_backend.h"
#include "kernels/parallel.h"
#include "model/model.h"

namespace winnow::engine {

// Copies the model's weights to the GPU. Throws unsupported without one, resource_exhausted where they do not fit.
void load_on_gpu(model::Model& model);

// Throws unsupported where the policy goes by something that is not gathered on a GPU.
void check_gathered_on_gpu(const policy::Policy& policy);

class DeviceRunner {
 public:
  // The model is on the GPU. `n_batch`: most tokens at once; `n_ctx`: most positions of a sequence.
  // `parallel`, which outlives the runner, counts on the host what has no kernel.
  DeviceRunner(const model::Model& model, const kernels::AttendShape& attention, int n_batch,
               int n_ctx, kernels::ParallelFor& parallel);
  ~DeviceRunner();

  // Rows for a sequence. All of a runner's have the same types.
  std::shared_ptr<cache::RemoteRows> make_rows(const cache::CacheShape& shape);

  // Between these calls `residual` [n_rows, n_embd] is what chunks leave between layers: kept on the GPU, of which fetch() brings a
  // part here. Throws resource_exhausted.
  void hold(std::span<float> residual);
  void fetch(std::span<float> part_of_residual);
  void drop();  // where nothing is held, does nothing

  // Layers [first_layer, first_layer + n_layers) over a chunk. `residual` [n_tokens, n_embd] (padded) is read, unless the layers
  // start at 0, and overwritten: not held, only where it is wanted, and then that is waited for.
  void run_layers(const Chunk& chunk, int first_layer, int n_layers, float* residual,
                  bool is_wanted);
  // Until all that was started is done. Throws internal where something failed.
  void wait() { step_->wait(); }
  // All layers over generated tokens; logits [n_tokens, n_vocab].
  void run_decode(const Chunk& chunk, std::span<float> logits);
  // residual [n_rows, n_embd], a graph's number of rows, -> logits of the first rows [., n_vocab].
  void run_output(std::span<const float> residual, std::span<float> logits);

  // Device memory beside weights and rows, for prompts of so many tokens.
  size_t measure(int n_prompt, bool is_layer_major);
  // What the rows of a cache take at most: those kept, and the whole heads of one layer or, chunk by chunk, of all of them.
  static size_t rows_bytes(const cache::CacheShape& shape, bool is_layer_major);
  // What choosing among them takes at most: the queries that the policy needs, what they attend to, scores and slots.
  size_t choosing_bytes(const cache::CacheShape& shape, const policy::Needs& needs,
                        bool is_layer_major) const;

 private:
  // What lies between two attentions: from one layer's result, or the residual stream where there is none, to what the next layer
  // takes, or the residual stream or logits where there is none. -1: no layer.
  struct PieceShape {
    int after = -1;
    int before = -1;
    int n_tokens = 0;
    bool has_logits = false;
    bool compares = false;  // leaves what attention has made of the residual stream

    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads it
    auto operator<=>(const PieceShape&) const = default;
  };
  struct Piece {
    ggml_context_ptr context;
    ggml_cgraph* graph = nullptr;
    ggml_tensor* output = nullptr;  // logits
  };
  struct Lookup {  // of embeddings, on the CPU
    ggml_context_ptr context;
    ggml_gallocr_ptr allocator;
    ggml_cgraph* graph = nullptr;
    ggml_tensor* tokens = nullptr;
    ggml_tensor* embeddings = nullptr;
  };

  void make_buffers();
  ggml_tensor* residual_before(int layer) const {
    return residuals_[static_cast<size_t>(layer) % residuals_.size()];
  }
  // The first n_tokens of a buffer [n, n_most] as a tensor of a graph, in the given shape.
  ggml_tensor* view(ggml_context* ctx, ggml_tensor* buffer, int n_tokens) const;
  // Has the graph leave `result` at the beginning of a buffer.
  void leave(ggml_context* ctx, ggml_cgraph* graph, ggml_tensor* result, ggml_tensor* buffer) const;
  Piece build(const PieceShape& shape) const;
  Piece& get(const PieceShape& shape);
  // Makes sure that get() will place nothing anew.
  void prepare(std::span<const PieceShape> shapes);
  void embed(std::span<const Token> tokens);
  // Places the pieces of the layers, the last one with logits or the residual stream before the layer after them, and enters the
  // chunk's rows.
  std::vector<PieceShape> begin(const Chunk& chunk, int first_layer, int n_layers, bool has_logits);
  // Starts pieces and attentions.
  void submit(const Chunk& chunk, std::span<const PieceShape> shapes);
  // What has no kernel, from copies.
  void count_queries(const Chunk& chunk, int layer);
  void compare(const Chunk& chunk, int layer);
  bool is_held(const float* residual) const;
  std::byte* held_at(const float* residual) const;

  const model::Model& model_;
  kernels::AttendShape attention_;
  int n_most_;  // tokens
  int n_ctx_;
  kernels::CpuBackend cpu_{1};  // looks embeddings up
  kernels::GpuBackend gpu_;
  std::unique_ptr<kernels::DeviceStep> step_;  // with the first rows
  cache::RowType row_type_{};                  // of these
  ggml_context_ptr descriptions_;              // of the buffers
  ggml_backend_buffer_ptr memory_;
  ggml_tensor* positions_ = nullptr;         // int32 [n_most]
  std::array<ggml_tensor*, 2> residuals_{};  // [n_embd, n_most], read and written in turns
  ggml_tensor* queries_ = nullptr;           // [head_dim * n_heads, n_most], and so on
  ggml_tensor* keys_ = nullptr;
  ggml_tensor* values_ = nullptr;
  ggml_tensor* attended_ = nullptr;
  ggml_tensor* compared_ = nullptr;  // [n_embd, n_most], the residual stream after attention
  ggml_gallocr_ptr allocator_;
  std::map<PieceShape, Piece> pieces_;
  uint64_t n_placed_ = 0;          // pieces, ever
  std::map<int, Lookup> lookups_;  // by the number of tokens
  std::span<float> held_;
  ggml_backend_buffer_ptr held_memory_;
  kernels::ParallelFor& parallel_;
  kernels::Rotation rotation_;
  std::vector<float> host_queries_;
  std::vector<float> host_residuals_[2];  // before and after attention
};

}  // namespace winnow::engine
