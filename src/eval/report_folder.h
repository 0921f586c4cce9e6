// A folder of results as a report wants it: read as far as it can be read, with what is wrong put into words.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/results.h"

namespace winnow::eval {

struct ReportFolder {
  std::string name;  // as it was given
  nlohmann::json config;
  Samples samples;
  nlohmann::json summary;  // what summary.json says; null where it is not there, or is no JSON
};

// Throws not_found (no such folder, no config.json, no samples.jsonl), bad_data (a config that is no JSON object),
// invalid_argument (no line that is a record), io.
ReportFolder read_report_folder(const std::string& path);

// The folders without those that have the records of one before, under an equal config; for each of these a line
// in `notes`.
std::vector<ReportFolder> without_repeats(std::vector<ReportFolder> folders,
                                          std::vector<std::string>& notes);

// "qwen2 3a58fd73405d09f3": architecture and fingerprint.
std::string model_name(const nlohmann::json& config);

}  // namespace winnow::eval
