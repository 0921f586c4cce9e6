#include "kernels/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace winnow {
namespace {

TEST(ParallelFor, CallsEveryItemOnce) {
  for (const int n_threads : {1, 2, 5}) {
    kernels::ParallelFor parallel(n_threads);
    for (const int n_items : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n_items));
      parallel.run(n_items, [&](int item, int thread) {
        ++calls[static_cast<size_t>(item)];
        EXPECT_LT(thread, n_threads);
      });
      for (const auto& n : calls) {
        EXPECT_EQ(n, 1);
      }
    }
  }
}

TEST(ParallelFor, CarriesAnExceptionOutAndWorksAgain) {
  kernels::ParallelFor parallel(2);
  const auto fail = [](int item, int) {
    if (item == 7) {
      throw std::runtime_error("seven");
    }
  };
  EXPECT_THROW(parallel.run(20, fail), std::runtime_error);
  std::atomic<int> n{0};
  parallel.run(20, [&](int, int) { ++n; });
  EXPECT_EQ(n, 20);
}

}  // namespace
}  // namespace winnow
