#include "cli/rope_flags.h"

#include <CLI/CLI.hpp>
#include <string>

namespace winnow::cli {
namespace {

std::string refuse_scaling(const std::string& name) {
  const auto scaling = model::find_rope_scaling(name);
  return scaling && *scaling != model::RopeScaling::kLongrope
             ? ""
             : "'" + name + "' is not known (none, linear, yarn)";
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
    app.add_option(std::string("--") + name, field, help)->capture_default_str();
  };
  rope.visit(add);
}

}  // namespace winnow::cli
