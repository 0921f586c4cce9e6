// How `winnow eval` and `winnow tune` run the model.
#pragma once

#include <string>

#include "cli/gpu_flags.h"
#include "eval/experiment.h"
#include "model/model.h"

namespace CLI {
class App;
}

namespace winnow::cli {

struct ModelFlags {
  std::string path;
  std::string weights = "file";
  std::string key_type = "f16";
  std::string value_type = "f16";
  std::string chat_template;
  bool no_chat = false;
  int n_threads = -1;
  int n_batch = 512;
  bool allow_beyond_context = false;
  std::string gpu_layers = kNoGpuLayers;
  model::RopeOptions rope;
};

void add_model_flags(CLI::App& app, ModelFlags& flags);

// Throws invalid_argument.
eval::ModelSettings model_settings(const ModelFlags& flags);

// Throws what Model throws.
model::Model load_model(const ModelFlags& flags);

}  // namespace winnow::cli
