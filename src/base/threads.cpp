#include "base/threads.h"

#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace winnow {

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
