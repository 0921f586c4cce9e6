// winnow report: one page to look at, made from folders of results.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "eval/report_data.h"
#include "eval/report_folder.h"
#include "eval/report_page.h"

namespace winnow::cli {
namespace {

constexpr size_t kMostBytes = 8'000'000;  // beyond, the page takes long to open

struct ReportFlags {
  std::vector<std::string> folders;
  std::string output;
  std::string title = "What a KV-cache budget costs";
  std::string baseline;
  bool is_data_only = false;
};

int report(const ReportFlags& flags) {
  if (!flags.is_data_only) {
    eval::check_has_plotly();
  }
  std::vector<std::string> read;
  for (const std::string& path : flags.folders) {
    for (const char* const name : {"/config.json", "/samples.jsonl", "/summary.json"}) {
      read.push_back(path + name);
    }
  }
  check_writable(flags.output, read);
  std::vector<eval::ReportFolder> folders;
  for (const std::string& path : flags.folders) {
    folders.push_back(eval::read_report_folder(path));
  }
  eval::ReportOptions options{
      .title = flags.title, .baseline = flags.baseline, .winnow = WINNOW_VERSION, .notes = {}};
  folders = eval::without_repeats(std::move(folders), options.notes);
  const nlohmann::ordered_json data = eval::report_data(folders, options);
  for (const std::string& note : options.notes) {
    log_warning(note);
  }
  for (const auto& folder : data["folders"]) {
    for (const auto& problem : folder["problems"]) {
      log_warning("'" + folder["name"].get<std::string>() + "': " + problem.get<std::string>());
    }
  }
  const std::string page =
      flags.is_data_only ? eval::script_json(data) + "\n" : eval::report_page(data);
  if (page.size() > kMostBytes) {
    log_warning("the page has " + std::to_string(page.size() / 1'000'000) +
                " MB and opens slowly; make several of fewer folders each");
  }
  write_file_atomically(flags.output, page);
  return 0;
}

}  // namespace

Verb add_report(CLI::App& app) {
  const auto flags = std::make_shared<ReportFlags>();
  app.add_option("folders", flags->folders, "folders that 'winnow eval' wrote")->required();
  app.add_option("-o,--output", flags->output, "the page, an HTML file")->required();
  app.add_option("--title", flags->title, "the page's title")->capture_default_str();
  app.add_option("--baseline", flags->baseline, "as for eval: also compare with this policy");
  app.add_flag("--data", flags->is_data_only, "write the page's numbers as JSON, and no page");
  return [flags] { return report(*flags); };
}

}  // namespace winnow::cli
