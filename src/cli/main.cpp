// winnow's command line: chooses the verb, and turns errors into messages and exit statuses (docs/cli.md).

#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/verbs.h"

namespace winnow::cli {
namespace {

int print_error(ErrorCode code, const std::string& message) {
  std::fprintf(stderr, "winnow: error: %s\n", message.c_str());
  return exit_status(code);
}

int run_main(int argc, char** argv) {
  CLI::App app("Runs language models on long inputs inside a fixed KV-cache budget.", "winnow");
  app.set_version_flag("--version", "winnow " WINNOW_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  CLI::App* const run = app.add_subcommand("run", "answer a question about a document, or continue a text");
  CLI::App* const methods = app.add_subcommand("methods", "list the eviction methods and their options");
  const std::vector<std::pair<CLI::App*, Verb>> verbs{{run, add_run(*run)}, {methods, add_methods(*methods)}};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? 0 : exit_status(ErrorCode::kInvalidArgument);
  }
  for (const auto& [parser, verb] : verbs) {
    if (parser->parsed()) {
      return verb();
    }
  }
  return exit_status(ErrorCode::kInternal);
}

}  // namespace
}  // namespace winnow::cli

int main(int argc, char** argv) {
  using winnow::ErrorCode;
  try {
    return winnow::cli::run_main(argc, argv);
  } catch (const winnow::Error& error) {
    return winnow::cli::print_error(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return winnow::cli::print_error(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& error) {
    return winnow::cli::print_error(ErrorCode::kInternal, error.what());
  }
}
