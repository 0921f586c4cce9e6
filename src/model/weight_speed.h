// How fast prompts would pass a model's matrices if they were expanded: measured on this machine, on some of their rows.
#pragma once

#include "model/gguf_file.h"
#include "model/weights.h"

namespace winnow::model {

// Of the matrices of all layers.
struct WeightSpeed {
  double file_ms = 0;      // a prompt token, multiplied with the file's
  double expanded_ms = 0;  // with expanded ones
  double expand_ms = 0;    // expanding them, once

  double speedup() const { return expanded_ms > 0 ? file_ms / expanded_ms : 0; }
};

// Multiplies batches of `n_tokens` with some rows of one matrix of each type and shape, by `n_threads` threads. Takes some
// tens of milliseconds with small models. Throws resource_exhausted.
WeightSpeed measure_weight_speed(const GgufFile& file, WeightType type, int n_tokens,
                                 int n_threads);

}  // namespace winnow::model
