#include "support/models.h"

#include <cstdlib>
#include <filesystem>

namespace winnow::test {
namespace {

std::filesystem::path models_folder() {
  if (const char* folder = std::getenv("WINNOW_MODELS")) {
    return folder;
  }
  if (const char* home = std::getenv("WINNOW_HOME")) {
    return std::filesystem::path(home) / "models";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "/" : home) / ".cache/winnow/models";
}

}  // namespace

std::optional<std::string> find_model(const std::string& file) {
  const std::filesystem::path path = models_folder() / file;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return std::nullopt;
  }
  return path.string();
}

}  // namespace winnow::test
