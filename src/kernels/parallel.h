// A parallel-for on ggml's threads, for work between graphs.
#pragma once

#include <memory>

#include "kernels/cpu_backend.h"

namespace winnow::kernels {

class ParallelFor {
 public:
  explicit ParallelFor(int n_threads);
  ~ParallelFor();
  ParallelFor(const ParallelFor&) = delete;
  ParallelFor& operator=(const ParallelFor&) = delete;

  int n_threads() const { return n_threads_; }

  // Calls body(item, thread) for item = 0 … n_items-1, each once, on any thread. What a body throws first is thrown
  // here after all threads have stopped. Allocates nothing.
  template <typename Body>
  void run(int n_items, const Body& body) {
    run(
        n_items,
        [](const void* data, int item, int thread) {
          (*static_cast<const Body*>(data))(item, thread);
        },
        &body);
  }

 private:
  using Call = void (*)(const void* body, int item, int thread);
  void run(int n_items, Call call, const void* body);

  struct Graph;
  int n_threads_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace winnow::kernels
