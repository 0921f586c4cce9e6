#include "cli/gpu_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/error.h"
#include "engine/device_runner.h"

namespace winnow::cli {

void add_gpu_flag(CLI::App& app, std::string& gpu_layers) {
  app.add_option("--ngl,--gpu-layers,--n-gpu-layers", gpu_layers,
                 "layers on a GPU: 0, or all of them: all, or a number that is no less")
      ->capture_default_str();
}

void load_on_gpu(const std::string& gpu_layers, model::Model& model) {
  if (!is_on_gpu(gpu_layers)) {
    return;
  }
  const int n_layers = model.hyper().n_layers;
  int n_wanted = 0;
  const char* const end = gpu_layers.data() + gpu_layers.size();
  const auto [rest, problem] = std::from_chars(gpu_layers.data(), end, n_wanted);
  const bool is_number = problem == std::errc() && rest == end;
  if (gpu_layers != "all" && (!is_number || n_wanted < n_layers)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--gpu-layers " + gpu_layers +
                    ": a model is wholly on the GPU or not at all; allowed: 0, all, or at least " +
                    std::to_string(n_layers));
  }
  engine::load_on_gpu(model);
}

}  // namespace winnow::cli
