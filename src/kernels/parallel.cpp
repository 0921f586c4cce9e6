#include "kernels/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>

#include "base/error.h"
#include "ggml-cpp.h"
#include "ggml.h"

namespace winnow::kernels {

// One custom node, run again and again. ggml's threads may not be thrown through, so the first exception is
// carried out by hand.
struct ParallelFor::Graph {
  CpuBackend backend;
  ggml_context_ptr context;
  ggml_cgraph* graph = nullptr;

  Call call = nullptr;
  const void* body = nullptr;
  int n_items = 0;
  std::atomic<int> next_item{0};
  std::mutex mutex;
  std::exception_ptr error;

  explicit Graph(int n_threads) : backend(n_threads) {
    const ggml_init_params params{.mem_size = 64 * 1024, .mem_buffer = nullptr, .no_alloc = false};
    context.reset(ggml_init(params));
    WINNOW_CHECK(context != nullptr);
    ggml_tensor* const node = ggml_custom_4d(context.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
                                             &Graph::work, GGML_N_TASKS_MAX, this);
    graph = ggml_new_graph_custom(context.get(), 8, false);
    ggml_build_forward_expand(graph, node);
  }

  static void work(ggml_tensor* /*dst*/, int ith, int /*nth*/, void* user_data) {
    static_cast<Graph*>(user_data)->take_items(ith);
  }

  // Relaxed: items are independent, so nothing is ordered by who takes which.
  int take_item() { return next_item.fetch_add(1, std::memory_order_relaxed); }

  void take_items(int thread) noexcept {
    try {
      for (int item = take_item(); item < n_items; item = take_item()) {
        call(body, item, thread);
      }
    } catch (...) {
      next_item = n_items;
      const std::scoped_lock lock(mutex);
      if (!error) {
        error = std::current_exception();
      }
    }
  }
};

ParallelFor::ParallelFor(int n_threads)
    : n_threads_(n_threads), graph_(std::make_unique<Graph>(n_threads)) {}

ParallelFor::~ParallelFor() = default;

void ParallelFor::run(int n_items, Call call, const void* body) {
  graph_->call = call;
  graph_->body = body;
  graph_->n_items = n_items;
  graph_->next_item = 0;
  graph_->error = nullptr;
  graph_->backend.compute(graph_->graph);
  if (graph_->error) {
    std::rethrow_exception(graph_->error);
  }
}

}  // namespace winnow::kernels
