// Where the downloaded models lie that larger tests want.
#pragma once

#include <optional>
#include <string>

namespace winnow::test {

// The path of `file` in $WINNOW_MODELS, or in models/ of $WINNOW_HOME (default: ~/.cache/winnow); nullopt
// when it is not there.
std::optional<std::string> find_model(const std::string& file);

inline constexpr const char* kSmolLm2 = "smollm2-135m-instruct-q4_1.gguf";
inline constexpr const char* kQwen2 = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
inline constexpr const char* kGemma3 = "gemma-3-270m-q4_k_m.gguf";

}  // namespace winnow::test

// Skips the running test when the model `file` is absent; otherwise defines `path`.
#define WINNOW_FIND_MODEL(path, file)                                                     \
  const std::optional<std::string> path##_found = ::winnow::test::find_model(file);       \
  if (!path##_found) {                                                                    \
    GTEST_SKIP() << "model " << (file) << " is not there; tools/fetch_models fetches it"; \
  }                                                                                       \
  const std::string& path = *path##_found
