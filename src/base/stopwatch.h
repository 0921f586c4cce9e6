// How long something takes.
#pragma once

#include <chrono>
#include <cstdint>

namespace winnow {

// Runs from when it is made.
class Stopwatch {
 public:
  int64_t ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }
  double ms() const { return static_cast<double>(ns()) / 1e6; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace winnow
