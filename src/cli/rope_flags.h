// The flags that say how positions rotate where it is not as the file states: llama.cpp's (docs/cli.md).
#pragma once

#include "model/rope.h"

namespace CLI {
class App;
}

namespace winnow::cli {

// Adds the flags to the parser, which writes into `rope` when it parses. The model checks the values.
void add_rope_flags(CLI::App& app, model::RopeOptions& rope);

}  // namespace winnow::cli
