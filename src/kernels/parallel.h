// A parallel-for on ggml's threads, for work between graphs.
#pragma once

#include <functional>
#include <memory>

#include "kernels/cpu_backend.h"

namespace winnow::kernels {

class ParallelFor {
 public:
  explicit ParallelFor(int n_threads);
  ~ParallelFor();
  ParallelFor(const ParallelFor&) = delete;
  ParallelFor& operator=(const ParallelFor&) = delete;

  // Calls body(item, thread) for item = 0 … n_items-1, each once, on any thread. What a body throws first is thrown
  // here after all threads have stopped.
  void run(int n_items, const std::function<void(int item, int thread)>& body);

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace winnow::kernels
