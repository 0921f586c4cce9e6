// What a green run under the thread sanitizer means: races inside a graph's nodes are seen, the order between nodes too.

#ifdef __SANITIZE_THREAD__

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "ggml-cpp.h"
#include "ggml.h"
#include "kernels/cpu_backend.h"
#include "kernels/parallel.h"

namespace winnow::kernels {
namespace {

constexpr int kThreads = 3;

// Each thread writes its place in the first node and reads its neighbour's in `reader`.
class Neighbours {
 public:
  explicit Neighbours(int reader) : reader_(reader) {}

  void run() {
    const ggml_context_ptr context(
        ggml_init({.mem_size = 64 * 1024, .mem_buffer = nullptr, .no_alloc = false}));
    std::array<ggml_tensor*, 1> source{};
    for (const auto work : {&Neighbours::first, &Neighbours::second}) {
      source[0] = ggml_custom_4d(context.get(), GGML_TYPE_F32, 1, 1, 1, 1, source.data(),
                                 source[0] == nullptr ? 0 : 1, work, GGML_N_TASKS_MAX, this);
    }
    ggml_cgraph* const graph = ggml_new_graph_custom(context.get(), 8, false);
    ggml_build_forward_expand(graph, source[0]);
    CpuBackend(kThreads).compute(graph);
  }

 private:
  static void first(ggml_tensor* /*dst*/, int thread, int n_threads, void* self) {
    static_cast<Neighbours*>(self)->node(1, thread, n_threads);
  }
  static void second(ggml_tensor* /*dst*/, int thread, int n_threads, void* self) {
    static_cast<Neighbours*>(self)->node(2, thread, n_threads);
  }

  void node(int number, int thread, int n_threads) {
    if (number == 1) {
      places_[static_cast<size_t>(thread)] = thread + 1;
    }
    if (number == reader_) {
      sum_.fetch_add(places_[static_cast<size_t>((thread + 1) % n_threads)],
                     std::memory_order_relaxed);
    }
  }

  int reader_;
  std::array<int, kThreads> places_{};
  std::atomic<int> sum_ = 0;
};

TEST(ThreadSanitizerDeathTest, SeesARaceInsideANode) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Neighbours(1).run();
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}

TEST(ThreadSanitizerDeathTest, SeesThatNodesFollowEachOther) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        for (int round = 0; round < 100; ++round) {
          Neighbours(2).run();
        }
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ThreadSanitizerDeathTest, SeesARaceOfItemsOfAParallelFor) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::atomic<int> n_arrived = 0;
        int shared = 0;
        ParallelFor(2).run(2, [&](int, int) {
          n_arrived.fetch_add(1, std::memory_order_relaxed);
          while (n_arrived.load(std::memory_order_relaxed) < 2) {
          }
          ++shared;
        });
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}

}  // namespace
}  // namespace winnow::kernels

#endif
