// The GPU's memory: what is committed is what is held; and errors that leave the process alive.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "cuda/gpu.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/device.h"

namespace winnow {
namespace {

using namespace kernels::cuda;  // NOLINT(google-build-using-namespace)
using Device = test::OnGpu;

// Runs with and without a GPU: whoever asks is told.
TEST(GpuAvailability, IsToldWithAReason) {
  if (why_unavailable().empty()) {
    EXPECT_NO_THROW(check_available());
    return;
  }
  try {
    check_available();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(error.what(), why_unavailable());
  }
}

TEST_F(Device, CommittedMemoryIsWhatTheDeviceHolds) {
  constexpr size_t kBytes = size_t{1} << 30;
  Arena arena(kBytes);
  EXPECT_EQ(arena.committed_bytes(), 0);
  const size_t granule = arena.granule_bytes();
  const size_t free_before = device_memory().free_bytes;
  arena.commit(0, kBytes);
  EXPECT_EQ(arena.committed_bytes(), kBytes);
  const size_t free_within = device_memory().free_bytes;
  EXPECT_GE(free_before - free_within, kBytes);
  // A give-back of parts of granules keeps those.
  arena.give_back(1, kBytes);
  EXPECT_EQ(arena.committed_bytes(), granule);
  EXPECT_GE(device_memory().free_bytes - free_within, kBytes - 2 * granule);
  arena.give_back(0, granule - 1);
  EXPECT_EQ(arena.committed_bytes(), granule);
  arena.give_back(0, granule);
  EXPECT_EQ(arena.committed_bytes(), 0);
}

TEST_F(Device, WhatIsCommittedHoldsWhatIsWritten) {
  Arena arena(size_t{64} << 20);
  const size_t granule = arena.granule_bytes();
  const std::vector<int> values(granule / sizeof(int), 42);
  arena.commit(granule, 2 * granule);
  arena.commit(granule, 3 * granule);  // the first of them is there already
  EXPECT_EQ(arena.committed_bytes(), 2 * granule);
  copy_to_device(arena.data() + granule, values.data(), granule);
  arena.give_back(2 * granule, 3 * granule);
  std::vector<int> read(values.size());
  copy_from_device(read.data(), arena.data() + granule, granule);
  EXPECT_EQ(read, values);
}

TEST_F(Device, TooLittleMemoryIsAnErrorThatTakesNothing) {
  const size_t total = device_memory().total_bytes;
  Arena arena(2 * total);
  const size_t free_before = device_memory().free_bytes;
  // More than there is: all that was taken on the way is given back.
  try {
    arena.commit(0, 2 * total);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
  }
  EXPECT_EQ(arena.committed_bytes(), 0);
  EXPECT_GE(device_memory().free_bytes + (size_t{64} << 20), free_before);
  try {
    const Buffer buffer(2 * total);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
  }
  const Buffer small(1 << 20);  // the process goes on
  EXPECT_NE(small.data(), nullptr);
}

TEST_F(Device, GraphsRunWhatWasRecorded) {
  const Stream stream;
  const Buffer buffer(1024);
  const Graph graph(stream, [&] { fill_bytes(buffer.data(), 7, 1024, stream); });
  graph.launch(stream);
  stream.wait();
  std::vector<std::byte> bytes(1024);
  copy_from_device(bytes.data(), buffer.data(), bytes.size());
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{7}; }));
}

}  // namespace
}  // namespace winnow
