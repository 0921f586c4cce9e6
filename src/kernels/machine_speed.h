// What the machine itself can do, measured: the ceilings that speeds of models are compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::kernels {

// Bytes per second at which `n_threads` threads together read memory in ascending order, nothing being done with it but a
// sum: the fastest of several passes over a buffer of four times the processor's last cache, at most a quarter of the
// memory that is left. Throws resource_exhausted.
double measure_read_speed(int n_threads);

// Operations per second of `n_threads` threads that do nothing but float multiply-adds in registers, of the widest
// vectors there are; a multiply-add is two. The fastest of several passes.
double measure_multiply_add_speed(int n_threads);

// "AVX3_ZEN4": the instruction set that the kernels run with here.
const char* instruction_set();

// The loops that are measured (cpu/machine_speed.cpp).
uint64_t sum_words(std::span<const uint64_t> words) noexcept;
// Returns the operations done; `result` keeps the compiler from dropping them.
double multiply_add(int64_t n_rounds, float& result) noexcept;

}  // namespace winnow::kernels
