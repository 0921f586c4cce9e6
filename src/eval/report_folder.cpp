#include "eval/report_folder.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace winnow::eval {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json summary_of(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return nullptr;
  }
  json summary = json::parse(read_text_file(path.string()), nullptr, /*allow_exceptions=*/false);
  return summary.is_discarded() ? json(nullptr) : summary;
}

bool are_equal(const ReportFolder& first, const ReportFolder& second) {
  return first.config == second.config &&
         std::ranges::equal(
             first.samples.records, second.samples.records,
             [](const Record& a, const Record& b) { return to_json(a) == to_json(b); });
}

}  // namespace

ReportFolder read_report_folder(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    throw Error(ErrorCode::kNotFound, "there is no folder '" + path + "'");
  }
  ReportFolder folder{.name = path, .config = read_config(path), .samples = {}, .summary = {}};
  if (!folder.config.is_object()) {
    throw Error(ErrorCode::kBadData, "the config.json of '" + path + "' is no JSON object");
  }
  folder.samples = read_samples(path, folder.config);
  if (folder.samples.records.empty()) {
    const size_t n_problems = folder.samples.problems.size();
    throw Error(ErrorCode::kInvalidArgument,
                "'" + path + "' has no samples" +
                    (n_problems == 0
                         ? std::string(" yet")
                         : ", but " + std::to_string(n_problems) +
                               " lines that are no records: " + folder.samples.problems.front()));
  }
  folder.summary = summary_of(fs::path(path) / "summary.json");
  return folder;
}

std::vector<ReportFolder> without_repeats(std::vector<ReportFolder> folders,
                                          std::vector<std::string>& notes) {
  std::vector<ReportFolder> kept;
  for (ReportFolder& folder : folders) {
    const auto same = std::ranges::find_if(
        kept, [&](const ReportFolder& other) { return are_equal(folder, other); });
    if (same == kept.end()) {
      kept.push_back(std::move(folder));
    } else {
      notes.push_back("'" + folder.name + "' has the same results as '" + same->name +
                      "' and is left out");
    }
  }
  return kept;
}

std::string model_name(const json& config) {
  const auto model = config.find("model");
  if (model != config.end() && model->is_null()) {
    return "no model";
  }
  if (model == config.end() || !model->is_object()) {
    return "a model that config.json does not name";
  }
  std::string name;
  for (const char* const key : {"architecture", "fingerprint"}) {
    const auto found = model->find(key);
    if (found != model->end() && found->is_string()) {
      name += (name.empty() ? "" : " ") + found->get<std::string>();
    }
  }
  return name.empty() ? "a model that config.json does not name" : name;
}

}  // namespace winnow::eval
