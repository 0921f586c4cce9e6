// Products of matrices by a warpgroup, four warps from a multiple of four on: 64 rows from registers or shared memory with rows of
// shared memory, 16 elements at a time. They run beside the warps' other instructions until they are waited for.
//
// Matrices in shared memory lie in panels of 64 elements, [rows][128 bytes], of which the pieces of 16 bytes are swapped as
// swapped() says, so that no two of eight rows lie in the same banks. A panel begins at a multiple of 1024 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/async_rows.cuh"
#include "kernels/cuda/score_tiles.cuh"

namespace winnow::kernels::cuda {

inline constexpr int kPanel = 64;  // elements
inline constexpr int kPanelRowBytes = 128;

// Where 16 bytes of a row of a panel lie in it.
__host__ __device__ constexpr int swapped(int row, int piece) {
  return row * kPanelRowBytes + (piece ^ row % 8) * 16;
}

// What tells the tensor cores of a panel at this address of shared memory, rows from the first on; + 2 for each step of 16 elements.
__device__ __forceinline__ uint64_t describe_panel(uint32_t address) {
  constexpr uint64_t kSwapped = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{8 * kPanelRowBytes / 16} << 32;
  return kSwapped | kEightRows | uint64_t{1} << 16 | (address & 0x3ffff) >> 4;
}

// Registers of products and of A may be read and written before, but not from here on until await_products().
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void submit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kBlocks>
__device__ __forceinline__ void await_products(float (&c)[kBlocks][4]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (auto& block : c) {  // the compiler does not know that they change here
    asm volatile("" : "+f"(block[0]), "+f"(block[1]), "+f"(block[2]), "+f"(block[3])::"memory");
  }
}
// What this thread wrote to shared memory is seen by products that are begun after a barrier.
__device__ __forceinline__ void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define WINNOW_PRODUCT_64(type, a, ...)                                                           \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %32, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                 \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"  \
      "%24,%25,%26,%27,%28,%29,%30,%31}, " a "\n}"                                                \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3])                                                              \
      : "r"(static_cast<int>(adds)), __VA_ARGS__)

#define WINNOW_PRODUCT_8(type)                                     \
  asm volatile(                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                  \
      "wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type   \
      " {%0,%1,%2,%3}, {%5,%6,%7,%8}, %9, p, 1, 1, 0;\n}"          \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]) \
      : "r"(static_cast<int>(adds)), "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b))

#define WINNOW_PRODUCT_128(type)                                                                   \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %64, 0;\n"                                                 \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                 \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                   \
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                           \
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                           \
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%65,%66,%67,%68}, %69, " \
      "p, 1, 1, 0;\n}"                                                                             \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),  \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),  \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]),  \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),  \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),  \
        "+f"(c[7][2]), "+f"(c[7][3]), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]), "+f"(c[8][3]),  \
        "+f"(c[9][0]), "+f"(c[9][1]), "+f"(c[9][2]), "+f"(c[9][3]), "+f"(c[10][0]),                \
        "+f"(c[10][1]), "+f"(c[10][2]), "+f"(c[10][3]), "+f"(c[11][0]), "+f"(c[11][1]),            \
        "+f"(c[11][2]), "+f"(c[11][3]), "+f"(c[12][0]), "+f"(c[12][1]), "+f"(c[12][2]),            \
        "+f"(c[12][3]), "+f"(c[13][0]), "+f"(c[13][1]), "+f"(c[13][2]), "+f"(c[13][3]),            \
        "+f"(c[14][0]), "+f"(c[14][1]), "+f"(c[14][2]), "+f"(c[14][3]), "+f"(c[15][0]),            \
        "+f"(c[15][1]), "+f"(c[15][2]), "+f"(c[15][3])                                             \
      : "r"(static_cast<int>(adds)), "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b))

// c = a · b, or c += a · b where `adds`: a has rows lane / 4 and 8 more of each warp's 16, as of mma.m16n8k16, b 128, 64 or 8 rows; c [64,
// 128, 64 or 8] lies in registers as that of mma.m16n8k16 does, eight columns after the other.
__device__ __forceinline__ void multiply_rows(float (&c)[8][4], const uint4& a, uint64_t b,
                                              bool adds, __half /*type*/) {
  WINNOW_PRODUCT_64("f16", "{%33,%34,%35,%36}, %37, p, 1, 1, 0;", "r"(a.x), "r"(a.y), "r"(a.z),
                    "r"(a.w), "l"(b));
}
__device__ __forceinline__ void multiply_rows(float (&c)[8][4], const uint4& a, uint64_t b,
                                              bool adds, __nv_bfloat16 /*type*/) {
  WINNOW_PRODUCT_64("bf16", "{%33,%34,%35,%36}, %37, p, 1, 1, 0;", "r"(a.x), "r"(a.y), "r"(a.z),
                    "r"(a.w), "l"(b));
}
__device__ __forceinline__ void multiply_rows(float (&c)[1][4], const uint4& a, uint64_t b,
                                              bool adds, __half /*type*/) {
  WINNOW_PRODUCT_8("f16");
}
__device__ __forceinline__ void multiply_rows(float (&c)[1][4], const uint4& a, uint64_t b,
                                              bool adds, __nv_bfloat16 /*type*/) {
  WINNOW_PRODUCT_8("bf16");
}
__device__ __forceinline__ void multiply_rows(float (&c)[16][4], const uint4& a, uint64_t b,
                                              bool adds, __half /*type*/) {
  WINNOW_PRODUCT_128("f16");
}
__device__ __forceinline__ void multiply_rows(float (&c)[16][4], const uint4& a, uint64_t b,
                                              bool adds, __nv_bfloat16 /*type*/) {
  WINNOW_PRODUCT_128("bf16");
}
// The same with `a` in shared memory, 64 rows of a panel.
__device__ __forceinline__ void multiply_rows(float (&c)[8][4], uint64_t a, uint64_t b, bool adds,
                                              __half /*type*/) {
  WINNOW_PRODUCT_64("f16", "%33, %34, p, 1, 1, 0, 0;", "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_rows(float (&c)[8][4], uint64_t a, uint64_t b, bool adds,
                                              __nv_bfloat16 /*type*/) {
  WINNOW_PRODUCT_64("bf16", "%33, %34, p, 1, 1, 0, 0;", "l"(a), "l"(b));
}

#undef WINNOW_PRODUCT_128
#undef WINNOW_PRODUCT_64
#undef WINNOW_PRODUCT_8

// 2^x of the special function unit: off by two units in the last place at most. 0 below -126.
__device__ __forceinline__ float exp2_quick(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace winnow::kernels::cuda
