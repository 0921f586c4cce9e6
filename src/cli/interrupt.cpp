#include "cli/interrupt.h"

#include <csignal>

namespace winnow::cli {
namespace {

std::atomic<bool> is_interrupted{false};

void on_interrupt(int /*signal*/) {
  is_interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

const std::atomic<bool>* watch_interrupt() {
  std::signal(SIGINT, on_interrupt);
  return &is_interrupted;
}

}  // namespace winnow::cli
