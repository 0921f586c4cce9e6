// Programs that some tests need and set-up does not install.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace winnow::test {

// The path of the first in PATH that has one of the names; empty: there is none.
inline std::string program_in_path(const std::vector<std::string>& names) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const std::string& name : names) {
      std::error_code ignored;
      if (std::filesystem::exists(std::filesystem::path(folder) / name, ignored)) {
        return (std::filesystem::path(folder) / name).string();
      }
    }
  }
  return "";
}

}  // namespace winnow::test
