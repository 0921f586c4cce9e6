// winnow's command line: chooses the verb, and turns errors into messages and exit statuses (docs/cli.md).

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "kernels/kernel_choice.h"

namespace winnow::cli {
namespace {

int print_error(ErrorCode code, const std::string& message) {
  std::fprintf(stderr, "winnow: error: %s\n", message.c_str());
  return exit_status(code);
}

// "unknown option '--buget' (did you mean '--budget'?)"
std::string unknown_option(const CLI::App& parser, const std::string& given) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : parser.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      names.push_back("-" + name);
    }
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string name = given.substr(0, given.find('='));
  // One letter is near every other one-letter option, so only words have neighbours.
  const std::string_view nearest = name.size() > 2 ? nearest_name(name, views) : "";
  return "unknown option '" + name + "'" +
         (nearest.empty() ? "" : " (did you mean '" + std::string(nearest) + "'?)");
}

// What is wrong with a command line, in one line. The parser's own text knows no near names.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string_view>& verbs) {
  const std::vector<const CLI::App*> chosen =
      app.get_subcommands([](const CLI::App* verb) { return verb->parsed(); });
  std::string words = "winnow ";  // as given: verbs may have verbs
  const CLI::App* innermost = &app;
  for (auto inner = chosen; !inner.empty();) {
    innermost = inner.front();
    words += innermost->get_name() + " ";
    inner = innermost->get_subcommands([](const CLI::App* verb) { return verb->parsed(); });
  }
  const CLI::App& parser = *innermost;
  const std::string hint = "; '" + words + "--help' lists what there is";
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const auto is_option = [](const std::string& word) {
    return word.size() > 1 && word.front() == '-';
  };
  if (chosen.empty() && !unknown.empty() && !is_option(unknown.front())) {
    return unknown_name("verb", unknown.front(), verbs);
  }
  const auto option = std::find_if(unknown.begin(), unknown.end(), is_option);
  if (option != unknown.end()) {
    return unknown_option(parser, *option) + hint;
  }
  if (!unknown.empty()) {
    return "unexpected argument '" + unknown.front() + "'" + hint;
  }
  return (chosen.empty() ? "a verb is needed" : std::string(error.what())) + hint;
}

// The parser takes a dash and several letters for several flags; llama.cpp's programs have such names.
void spell_out(std::vector<std::string>& args) {
  for (std::string& arg : args) {
    if (arg == "-np" || arg == "-ctk" || arg == "-ctv") {
      arg.insert(0, "-");
    }
  }
}

// Such a name of `run`, where a word may be a text: with its value behind it, it is none.
void spell_out_gpu_layers(std::vector<std::string>& args) {
  for (size_t i = 0; i + 1 < args.size(); ++i) {
    const std::string& value = args[i + 1];
    if (args[i] == "-ngl" &&
        (value == "all" || value.find_first_not_of("0123456789") == std::string::npos)) {
      args[i].insert(0, "-");
    }
  }
}

// To the verb and to those that it has.
void add_kernel_flag(CLI::App& verb) {
  verb.add_option_function<std::string>(
          "--kernels",
          [](const std::string& name) {
            kernels::choose_kernels(kernels::parse_kernel_choice(name));
          },
          "auto: the fastest; reference: the plainest, with the same results; require: auto, and "
          "on "
          "a GPU nothing is done by the host instead")
      ->check(CLI::IsMember({"auto", "reference", "require"}));
  for (CLI::App* const inner : verb.get_subcommands({})) {
    add_kernel_flag(*inner);
  }
}

int run_main(int argc, char** argv) {
  CLI::App app("Runs language models on long inputs inside a fixed KV-cache budget.", "winnow");
  app.set_version_flag("--version", "winnow " WINNOW_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  CLI::App* const run =
      app.add_subcommand("run", "answer a question about a document, or continue a text");
  CLI::App* const compress = app.add_subcommand(
      "compress", "read a document and write its cache, for any number of questions");
  CLI::App* const bench = app.add_subcommand("bench", "measure how fast models are");
  CLI::App* const eval =
      app.add_subcommand("eval", "measure what budgets cost, on the same prompts for all policies");
  CLI::App* const report =
      app.add_subcommand("report", "make one page to look at, from the results of evaluations");
  CLI::App* const tune =
      app.add_subcommand("tune", "find the smallest budget that loses little on a document");
  CLI::App* const calibrate = app.add_subcommand(
      "calibrate", "make the filters of a model that the method qfilters scores by");
  CLI::App* const score = app.add_subcommand(
      "score", "score keys, values and queries of a file by policies, without a model");
  CLI::App* const roles =
      app.add_subcommand("roles", "show what each part of a structured text is there for");
  CLI::App* const train_probe =
      app.add_subcommand("train-probe", "make a probe, which tells roles of tokens from their ids");
  CLI::App* const methods =
      app.add_subcommand("methods", "list the eviction methods and their options");
  const std::vector<std::pair<CLI::App*, Verb>> verbs{{run, add_run(*run)},
                                                      {compress, add_compress(*compress)},
                                                      {bench, add_bench(*bench)},
                                                      {eval, add_eval(*eval)},
                                                      {report, add_report(*report)},
                                                      {tune, add_tune(*tune)},
                                                      {calibrate, add_calibrate(*calibrate)},
                                                      {score, add_score(*score)},
                                                      {roles, add_roles(*roles)},
                                                      {train_probe, add_train_probe(*train_probe)},
                                                      {methods, add_methods(*methods)}};
  for (const auto& [parser, verb] : verbs) {
    if (parser != report && parser != roles && parser != train_probe && parser != methods) {
      add_kernel_flag(*parser);
    }
  }
  try {
    std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
    if (!args.empty() && args.front() == "bench") {  // elsewhere such a word may be a text
      spell_out(args);
    }
    spell_out_gpu_layers(args);
    std::reverse(args.begin(), args.end());  // as the parser wants it
    app.parse(std::move(args));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version was asked for
      app.exit(error);
      write_output("");
      return 0;
    }
    std::vector<std::string_view> names;
    names.reserve(verbs.size());
    for (const auto& [parser, verb] : verbs) {
      names.push_back(parser->get_name());
    }
    throw Error(ErrorCode::kInvalidArgument, usage_problem(app, error, names));
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
  // By default every thread may reserve a heap of 64 MiB, at any time: under a limit of address space that takes what was
  // left for threads to start.
  mallopt(M_ARENA_MAX, 1);
  // A file that grows beyond the limit of sizes is an error of writing.
  std::signal(SIGXFSZ, SIG_IGN);
  using winnow::ErrorCode;
  try {
    return winnow::cli::run_main(argc, argv);
  } catch (const winnow::Error& error) {
    return winnow::cli::print_error(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return winnow::cli::print_error(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::system_error& error) {
    // What the standard library throws when a thread does not start.
    return winnow::cli::print_error(ErrorCode::kResourceExhausted, error.what());
  } catch (const std::exception& error) {
    return winnow::cli::print_error(ErrorCode::kInternal, error.what());
  }
}
