// winnow as another project sees it: installed, moved elsewhere, found by CMake, and built against.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/files.h"
#include "support/models.h"
#include "support/program.h"
#include "support/sanitizers.h"
#include "support/tiny_model.h"

namespace winnow::test {
namespace {

namespace fs = std::filesystem;

// Every step needs the ones before.
Outcome run(const std::string& program, const std::vector<std::string>& args) {
  Outcome outcome = Program(program, args, {}).wait();
  if (outcome.status != 0) {
    throw std::runtime_error(program + " ended with status " + std::to_string(outcome.status) +
                             ":\n" + outcome.out + outcome.err);
  }
  return outcome;
}

// Installs the build and moves what was installed, so that nothing can depend on where it was meant to be.
fs::path install() {
  const fs::path first = temporary_path("installed-first");
  run(WINNOW_CMAKE, {"--install", WINNOW_BUILD_FOLDER, "--prefix", first});
  fs::path prefix = temporary_path("installed");
  fs::rename(first, prefix);
  return prefix;
}

// The example from the documentation, built in a copy outside the repository. Returns the program.
fs::path build_example(const fs::path& prefix) {
  const fs::path source = temporary_path("ask");
  const fs::path build = source / "build";
  fs::copy(fs::path(WINNOW_SOURCE_FOLDER) / "docs/examples", source);
  run(WINNOW_CMAKE, {"-S", source, "-B", build, "-G", WINNOW_GENERATOR,
                     std::string("-DCMAKE_CXX_COMPILER=") + WINNOW_CXX_COMPILER,
                     std::string("-DCMAKE_CXX_COMPILER_LAUNCHER=") + WINNOW_CXX_LAUNCHER,
                     "-DCMAKE_PREFIX_PATH=" + prefix.string() + ";" + WINNOW_PREFIX_PATH});
  run(WINNOW_CMAKE, {"--build", build});
  return build / "ask";
}

void expect_no_foreign_paths(const fs::path& prefix) {
  int n_files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(prefix)) {
    const std::string extension = entry.path().extension();
    if (extension != ".cmake" && extension != ".h") {
      continue;
    }
    ++n_files;
    const std::string text = read_text_file(entry.path());
    for (const std::string& path :
         {std::string(WINNOW_SOURCE_FOLDER), std::string(WINNOW_BUILD_FOLDER), prefix.string(),
          std::string(std::getenv("HOME"))}) {
      EXPECT_EQ(text.find(path), std::string::npos) << entry.path() << " names " << path;
    }
  }
  EXPECT_GE(n_files, 10);
}

// The lines of the example's report, "[34 positions, 1 bytes now, ...]".
std::vector<std::string> cache_lines(const std::string& output) {
  std::vector<std::string> lines;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);) {
    if (line.rfind("[", 0) == 0) {
      lines.push_back(line);
    }
  }
  return lines;
}

TEST(Package, IsEnoughToBuildAndRunTheExample) {
  if (is_sanitized()) {
    GTEST_SKIP()
        << "a build with sanitizers is not one to install: its libraries need their run-time";
  }
  const fs::path prefix = install();
  expect_no_foreign_paths(prefix);
  EXPECT_EQ(run(prefix / "bin/winnow", {"--version"}).out.rfind("winnow ", 0), 0U);
  const fs::path ask = build_example(prefix);

  std::string text;
  for (int i = 0; i < 10; ++i) {
    text += "The garden has old trees, and the kitchen is closed on Mondays. ";
  }
  text += "The password of the archive is 4711. The library opens at nine.";
  const std::string document = temporary_path("document.txt");
  std::ofstream(document) << text;
  const std::vector<std::string> rest{document, "130", "What is the password of the archive?",
                                      "When does the library open?"};
  const auto answer = [&](const std::string& model) {
    std::vector<std::string> args{model};
    args.insert(args.end(), rest.begin(), rest.end());
    return run(ask, args).out;
  };

  const std::string tiny = answer(write_tiny_model());
  EXPECT_EQ(tiny.rfind("llama, 2 layers, trained for 4096 positions\n", 0), 0U) << tiny;
  EXPECT_EQ(cache_lines(tiny).size(), 3U) << tiny;  // after the document and after each answer
  const Outcome refused = Program(ask, {"/no/such/model", document, "130", "?"}, {}).wait();
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("/no/such/model"), std::string::npos) << refused.err;

  WINNOW_FIND_MODEL(smollm2, kSmolLm2);
  const std::string real = answer(smollm2);
  EXPECT_NE(real.find("4711"), std::string::npos) << real;
  EXPECT_NE(real.find("nine"), std::string::npos) << real;
  for (const std::string& line : cache_lines(real)) {
    EXPECT_EQ(line.find("; 0 rows evicted"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace winnow::test
