#include "cli/rope_flags.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace winnow::cli {
namespace {

std::string refuse_scaling(const std::string& name) {
  const auto scaling = model::find_rope_scaling(name);
  return scaling && *scaling != model::RopeScaling::kLongrope
             ? ""
             : "'" + name + "' is not known (none, linear, yarn)";
}

// What a float cannot hold would be taken for 0, which stands for the file's value.
std::string refuse_underflow(const std::string& number) {
  errno = 0;
  return std::strtof(number.c_str(), nullptr) == 0 && errno == ERANGE
             ? "'" + number + "' is too close to 0"
             : "";
}

}  // namespace

void add_rope_flags(CLI::App& app, model::RopeOptions& rope) {
  app.add_option_function<std::string>(
         "--rope-scaling",
         [&rope](const std::string& name) { rope.scaling = model::find_rope_scaling(name); },
         "how positions are scaled: none, linear or yarn; default: as the file states")
      ->check(refuse_scaling);
  const auto add = [&app](auto& field, const char* name, auto /*low*/, auto /*high*/,
                          auto /*as_stated*/, const char* help) {
    app.add_option(std::string("--") + name, field, help)
        ->check(refuse_underflow)
        ->capture_default_str();
  };
  rope.visit(add);
}

}  // namespace winnow::cli
