#include "base/scratch.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

TEST(Scratch, WhatIsTakenStaysWhileMoreIsTaken) {
  Scratch scratch;
  const Scratch::Frame frame(scratch);
  const std::span<int> first = scratch.take_filled<int>(3, 7);
  for (int i = 0; i < 100; ++i) {
    scratch.take_filled<double>(1000, 1.5);
  }
  EXPECT_EQ(std::vector<int>(first.begin(), first.end()), (std::vector<int>{7, 7, 7}));
  EXPECT_TRUE(scratch.take<float>(0).empty());
}

TEST(Scratch, AFrameGivesItsMemoryToTheNext) {
  Scratch scratch;
  const void* memory = nullptr;
  for (const size_t n : {100U, 50U, 1U}) {
    const Scratch::Frame frame(scratch);
    const void* const taken = scratch.take<float>(n).data();
    EXPECT_EQ(taken, memory == nullptr ? taken : memory);
    memory = taken;
    const Scratch::Frame inner(scratch);
    EXPECT_NE(scratch.take<float>(1).data(), taken);
  }
}

}  // namespace
}  // namespace winnow
