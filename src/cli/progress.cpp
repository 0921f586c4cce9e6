#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace winnow::cli {

ProgressBar::ProgressBar(std::string label, bool is_wanted)
    : label_(std::move(label)), is_shown_(is_wanted && ::isatty(STDERR_FILENO) != 0) {}

void ProgressBar::update(double fraction) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_shown_ ||
      (is_drawn_ && fraction < 1 && now - last_draw_ < std::chrono::milliseconds(100))) {
    return;
  }
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(fraction * kWidth);
  const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                          std::string(static_cast<size_t>(kWidth - filled), '.');
  std::fprintf(stderr, "\r%s [%s] %3d %%", label_.c_str(), bar.c_str(),
               static_cast<int>(fraction * 100));
  std::fflush(stderr);
  is_drawn_ = true;
  last_draw_ = now;
}

void ProgressBar::clear() {
  if (is_drawn_) {
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
    is_drawn_ = false;
  }
}

}  // namespace winnow::cli
