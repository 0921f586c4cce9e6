// What a GPU does at best with memory.
#pragma once

#include <cstddef>

#include "kernels/cuda/device.h"

namespace winnow::bench {

// Copies `bytes`, a multiple of 16, with 16 bytes a thread at a time.
void copy(void* to, const void* from, size_t bytes, const kernels::cuda::Stream& stream);

// Reads them, and writes next to nothing: to `sums`, which has room for 4 bytes a block of 64 KiB.
void read(unsigned* sums, const void* from, size_t bytes, const kernels::cuda::Stream& stream);

// to[i * stride + j] = from[i * n + j] for i < n_rows, j < n: what appending does to scores.
void write_rows(float* to, int stride, const float* from, int n_rows, int n,
                const kernels::cuda::Stream& stream);

// Starts a kernel that does nothing.
void do_nothing(const kernels::cuda::Stream& stream);

}  // namespace winnow::bench
