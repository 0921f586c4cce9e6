// libllama alone on a GPU: what the full cache takes to read a prompt and to decode after it, beside `winnow bench -ngl`. A program
// of its own, since winnow switches off the CUDA graphs that ggml records.

#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <vector>

#include "base/stopwatch.h"
#include "ggml-backend.h"
#include "llama.h"

namespace {

struct Options {
  std::string model;
  std::string backend;  // ggml's CUDA module; empty: beside ggml's libraries
  int n_prompt = 27766;
  int n_decode = 128;
  int n_batch = 2048;
  int n_ubatch = 512;
  int n_repetitions = 5;
  bool has_flash_attention = true;
};

std::string module_beside_ggml() {
  Dl_info where{};
  dladdr(reinterpret_cast<const void*>(&ggml_backend_load), &where);
  return std::filesystem::path(where.dli_fname).parent_path() / "libggml-cuda.so";
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void read_prompt(llama_context* context, std::vector<int32_t>& tokens, int n_batch) {
  for (size_t done = 0; done < tokens.size(); done += static_cast<size_t>(n_batch)) {
    const size_t n = std::min(tokens.size() - done, static_cast<size_t>(n_batch));
    llama_decode(context, llama_batch_get_one(tokens.data() + done, static_cast<int32_t>(n)));
  }
  llama_get_logits_ith(context, -1);  // waits
}

int measure(const Options& options) {
  const std::string module = options.backend.empty() ? module_beside_ggml() : options.backend;
  if (ggml_backend_load(module.c_str()) == nullptr) {
    std::fprintf(stderr, "llama_gpu: '%s' cannot be loaded\n", module.c_str());
    return 3;
  }
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 999;
  llama_model* const model = llama_model_load_from_file(options.model.c_str(), model_params);
  if (model == nullptr) {
    return 3;
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(options.n_prompt + options.n_decode + 256);
  params.n_batch = static_cast<uint32_t>(options.n_batch);
  params.n_ubatch = static_cast<uint32_t>(options.n_ubatch);
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type =
      options.has_flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* const context = llama_init_from_model(model, params);
  if (context == nullptr) {
    return 3;
  }
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> any(
      0, llama_vocab_n_tokens(llama_model_get_vocab(model)) - 1);
  std::vector<int32_t> tokens(static_cast<size_t>(options.n_prompt));
  std::ranges::generate(tokens, [&] { return any(random); });
  std::vector<double> prompt_ms;
  std::vector<double> decode_ms;
  for (int i = 0; i <= options.n_repetitions; ++i) {
    llama_memory_clear(llama_get_memory(context), true);
    const winnow::Stopwatch of_prompt;
    read_prompt(context, tokens, options.n_batch);
    const double prompt = of_prompt.ms();
    const winnow::Stopwatch of_decode;
    for (int j = 0; j < options.n_decode; ++j) {
      int32_t token = 100 + j;
      llama_decode(context, llama_batch_get_one(&token, 1));
      llama_get_logits_ith(context, -1);
    }
    if (i > 0) {  // the first warms up
      prompt_ms.push_back(prompt);
      decode_ms.push_back(of_decode.ms());
    }
  }
  const auto [least, most] = std::ranges::minmax(decode_ms);
  std::printf(
      "libllama, %s, %d tokens, batch %d/%d: first token %.1f ms (%.1f to %.1f), decoding %.1f "
      "tok/s (%.1f to %.1f)\n",
      options.has_flash_attention ? "flash attention" : "no flash attention", options.n_prompt,
      options.n_batch, options.n_ubatch, median(prompt_ms), std::ranges::min(prompt_ms),
      std::ranges::max(prompt_ms), 1000 * options.n_decode / median(decode_ms),
      1000 * options.n_decode / most, 1000 * options.n_decode / least);
  llama_free(context);
  llama_model_free(model);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times libllama's full cache on a GPU.");
  Options options;
  app.add_option("-m,--model", options.model, "a GGUF file")->required();
  app.add_option("--backend", options.backend, "ggml's CUDA module, built with flash attention");
  app.add_option("-p,--n-prompt", options.n_prompt)->capture_default_str();
  app.add_option("-n,--n-gen", options.n_decode)->capture_default_str();
  app.add_option("-b,--batch-size", options.n_batch)->capture_default_str();
  app.add_option("--ubatch-size", options.n_ubatch)->capture_default_str();
  app.add_option("-r,--repetitions", options.n_repetitions)->capture_default_str();
  app.add_option("--fa", options.has_flash_attention, "flash attention")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  llama_backend_init();
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) {
          std::fputs(text, stderr);
        }
      },
      nullptr);
  return measure(options);
}
