#include "cli/progress.h"

#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace winnow::cli {
namespace {

// "  1:05 left", if the rest goes on as what is done did.
std::string time_left(double seconds_so_far, double fraction) {
  constexpr double kLeastSeconds = 3;
  if (seconds_so_far < kLeastSeconds || fraction <= 0) {
    return "";
  }
  const auto left = static_cast<int64_t>(seconds_so_far * (1 - fraction) / fraction);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "  %" PRId64 ":%02d left", left / 60,
                static_cast<int>(left % 60));
  return text.data();
}

}  // namespace

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
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::fprintf(stderr, "\r%s [%s] %3d %%%s\033[K", label_.c_str(), bar.c_str(),
               static_cast<int>(fraction * 100), time_left(seconds, fraction).c_str());
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
