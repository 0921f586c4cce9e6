// Ctrl-C asks for an orderly stop.
#pragma once

#include <atomic>

namespace winnow::cli {

// From now on the first Ctrl-C sets this flag; a second one ends the program as usual.
const std::atomic<bool>* watch_interrupt();

}  // namespace winnow::cli
