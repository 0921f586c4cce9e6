// Rows from global to shared memory by the copy engine, which needs neither registers nor threads that wait.
#pragma once

#include <cstddef>
#include <cstdint>

namespace winnow::kernels::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// A barrier in shared memory at which bytes arrive, or threads. Addresses and sizes are multiples of 16.
struct Arrival {
  uint64_t barrier;

  __device__ void init(int n_threads = 1) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
                 "r"(n_threads)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
                 : "memory");
  }
  // By one thread, once for each use: how many bytes fetch() brings.
  __device__ void expect(uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
        "r"(bytes)
        : "memory");
  }
  __device__ void fetch(void* to, const void* from, uint32_t bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&barrier))
        : "memory");
  }
  // Until the bytes of its use number `use` (0, 1, …) are there.
  __device__ void wait(int use) {
    const uint32_t parity = static_cast<uint32_t>(use) & 1;
    uint32_t is_done = 0;
    do {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(is_done)
          : "r"(shared_address(&barrier)), "r"(parity)
          : "memory");
    } while (is_done == 0);
  }
};

// Makes initialised barriers known to the copy engine. A barrier of the block's threads must follow.
__device__ __forceinline__ void fence_arrivals() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace winnow::kernels::cuda
