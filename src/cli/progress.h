// A progress bar on standard error, when that is a terminal: with the time that is left, once that can be told.
#pragma once

#include <chrono>
#include <string>

namespace winnow::cli {

class ProgressBar {
 public:
  ProgressBar(std::string label, bool is_wanted);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(double fraction);
  void clear();  // takes the bar off the screen

 private:
  std::string label_;
  bool is_shown_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_draw_{};
};

}  // namespace winnow::cli
