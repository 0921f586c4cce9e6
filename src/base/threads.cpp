#include "base/threads.h"

#include <algorithm>
#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace winnow {

int resolve_threads(int n_threads) {
  if (n_threads != -1 && (n_threads < 1 || n_threads > kMaxThreads)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(n_threads) + " threads; allowed are 1 to " +
                    std::to_string(kMaxThreads) + ", or -1 for as many as the machine reports");
  }
  const auto reported = static_cast<int>(std::thread::hardware_concurrency());
  return n_threads == -1 ? std::clamp(reported, 1, kMaxThreads) : n_threads;
}

void check_threads_start(int n_threads) {
  std::latch all_started(1);
  std::vector<std::jthread> threads;
  try {
    while (static_cast<int>(threads.size()) < n_threads - 1) {
      threads.emplace_back([&all_started] { all_started.wait(); });
    }
    all_started.count_down();
  } catch (const std::system_error& error) {
    all_started.count_down();
    throw Error(ErrorCode::kResourceExhausted,
                "only " + std::to_string(threads.size() + 1) + " of " + std::to_string(n_threads) +
                    " threads can be started (" + error.code().message() +
                    "); fewer threads (-t) need less");
  }
}

}  // namespace winnow
