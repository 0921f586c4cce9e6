// A decoded token allocates nothing, whatever the policy: not for the graph, not for choosing rows, not for moving them.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "support/generate.h"
#include "support/sanitizers.h"
#include "support/tiny_model.h"

namespace {

std::atomic<int64_t> n_allocations{0};

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Counts what this program allocates. Sanitizers have operators of their own.
void* operator new(std::size_t size) {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}
#endif

namespace winnow {
namespace {

// The fewest allocations that any 100 steps of these sequences made in a row. A thread's buffers grow when it first gets
// work, which may be late; what every token allocates is in each hundred.
int64_t fewest_allocations_of(std::vector<engine::Sequence>& sequences, engine::Engine& engine) {
  const int32_t token = 7;
  std::vector<engine::StepInput> inputs;
  for (engine::Sequence& sequence : sequences) {
    inputs.push_back({.sequence = &sequence, .tokens = {&token, 1}});
  }
  std::vector<float> logits;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int hundred = 0; hundred < 10 && fewest > 0; ++hundred) {
    const int64_t before = n_allocations;
    for (int step = 0; step < 100; ++step) {
      engine.step(inputs, logits);
    }
    fewest = std::min<int64_t>(fewest, n_allocations - before);
  }
  return fewest;
}

TEST(Allocation, ADecodedTokenAllocatesNothing) {
  if (test::is_sanitized()) {
    GTEST_SKIP() << "sanitizers have allocators of their own";
  }
  const model::Model model(test::write_tiny_model(), {});
  const auto prompt = test::random_tokens(150, model.hyper().n_vocab);
  for (const int n_threads : {1, 2}) {
    engine::Engine engine(model, {.n_threads = n_threads, .n_batch = 64});
    for (const char* policy :
         {"full", "knorm:budget=100", "knorm:budget=100,slack=16", "streaming:budget=100",
          "random:budget=100", "keydiff:budget=100", "lagkv:budget=100,lag=16",
          "knorm+pyramid:budget=100", "knorm+adakv:budget=100", "snapkv:budget=100",
          "tova:budget=100", "quest:budget=100", "h2o:budget=100", "expected-attention:budget=100",
          "qfilters@keysvd:budget=100,calib_tokens=50"}) {
      for (const size_t n_sequences : {1, 3}) {
        std::vector<engine::Sequence> sequences;
        for (size_t i = 0; i < n_sequences; ++i) {
          sequences.push_back(test::make_sequence(model, policy));
          test::feed_all(engine, sequences.back(), prompt);
        }
        EXPECT_EQ(fewest_allocations_of(sequences, engine), 0)
            << policy << ", " << n_sequences << " sequences, " << n_threads << " threads";
      }
    }
  }
}

TEST(Allocation, IsCounted) {
  if (test::is_sanitized()) {
    GTEST_SKIP() << "sanitizers have allocators of their own";
  }
  const int64_t before = n_allocations;
  const std::vector<int> some(100);
  EXPECT_EQ(some.size(), 100U);
  EXPECT_EQ(n_allocations - before, 1);
}

}  // namespace
}  // namespace winnow
