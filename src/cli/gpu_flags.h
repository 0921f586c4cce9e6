// The flag that says whether a model runs on a GPU.
#pragma once

#include <string>

#include "model/model.h"

namespace CLI {
class App;
}

namespace winnow::cli {

inline constexpr char kNoGpuLayers[] = "0";

void add_gpu_flag(CLI::App& app, std::string& gpu_layers);

inline bool is_on_gpu(const std::string& gpu_layers) {
  return gpu_layers != kNoGpuLayers;
}

// Where the flag says so. Throws invalid_argument for part of the layers, or what engine::load_on_gpu throws.
void load_on_gpu(const std::string& gpu_layers, model::Model& model);

}  // namespace winnow::cli
