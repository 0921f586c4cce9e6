#include "kernels/machine_speed.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/processor.h"
#include "base/stopwatch.h"
#include "kernels/parallel.h"

namespace winnow::kernels {
namespace {

constexpr size_t kSmallestBuffer = size_t{32} << 20;
constexpr size_t kLargestBuffer = size_t{1} << 30;
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr int kReadPasses = 8;
constexpr int kMultiplyPasses = 20;
constexpr int64_t kRounds = 1 << 18;  // about a millisecond

double fastest_seconds(int n_passes, const std::function<void()>& pass) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < n_passes; ++i) {
    const Stopwatch stopwatch;
    pass();
    fastest = std::min(fastest, static_cast<double>(stopwatch.ns()) / 1e9);
  }
  return fastest;
}

std::vector<uint64_t> read_buffer() {
  const size_t wanted = std::clamp(4 * processor().cache_bytes, kSmallestBuffer, kLargestBuffer);
  const size_t n_bytes = std::min(wanted, available_memory().bytes / 4);
  const size_t n_pieces = std::max<size_t>(n_bytes / kPieceBytes, 1);
  try {
    return std::vector<uint64_t>(n_pieces * kPieceBytes / sizeof(uint64_t), 0x5a5a5a5a5a5a5a5a);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted,
                "no memory to measure reading with (" + format_bytes(n_bytes) + ")");
  }
}

}  // namespace

double measure_read_speed(int n_threads) {
  const std::vector<uint64_t> buffer = read_buffer();
  constexpr size_t kPieceWords = kPieceBytes / sizeof(uint64_t);
  const int n_pieces = static_cast<int>(buffer.size() / kPieceWords);
  ParallelFor parallel(n_threads);
  std::atomic<uint64_t> sum{0};
  const double seconds = fastest_seconds(kReadPasses, [&] {
    parallel.run(n_pieces, [&](int piece, int /*thread*/) {
      sum += sum_words({buffer.data() + static_cast<size_t>(piece) * kPieceWords, kPieceWords});
    });
  });
  return static_cast<double>(buffer.size() * sizeof(uint64_t)) / seconds;
}

double measure_multiply_add_speed(int n_threads) {
  ParallelFor parallel(n_threads);
  std::vector<double> operations(static_cast<size_t>(n_threads));
  std::vector<float> results(operations.size());
  const double seconds = fastest_seconds(kMultiplyPasses, [&] {
    parallel.run(n_threads, [&](int item, int /*thread*/) {
      const auto i = static_cast<size_t>(item);
      operations[i] = multiply_add(kRounds, results[i]);
    });
  });
  return operations.front() * n_threads / seconds;
}

}  // namespace winnow::kernels
