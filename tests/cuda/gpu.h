// What tests on a GPU have in common.
#pragma once

#include <gtest/gtest.h>

#include "kernels/cuda/device.h"

namespace winnow::test {

// Tests on the GPU, skipped where there is none.
class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = kernels::cuda::why_unavailable(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }
};

}  // namespace winnow::test
