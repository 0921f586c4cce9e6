// All numbers of a report, as one JSON object: what the page shows, it takes from here.
//
// {"title", "winnow", "notes": [text…],
//  "metrics": {name: {"label", "is_higher_better"}},
//  "folders": [{"name", "model", "config", "problems": [text…], "summary": as summary.json has it,
//               "arms": [for each of summary's groups {"method", "budget", "n_kept": [layer][KV head],
//                        "depths": {"depth": [text…], "n": […], "metrics": {name: [mean…]}},
//                        "answers": [{"id", "answer", "score"}…]}]}…],
//  "panels": [{"folder", "task", "n_tokens", "groups": [index into folder's groups…], "primary",
//              "fronts": [{"metric", "question", "groups": [index…]}…]}…]}
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report_folder.h"

namespace winnow::eval {

struct ReportOptions {
  std::string title;
  std::string baseline;            // as for summarize()
  std::string winnow;              // the version
  std::vector<std::string> notes;  // what the reader of the page should know beforehand
};

nlohmann::ordered_json report_data(std::span<const ReportFolder> folders,
                                   const ReportOptions& options);

}  // namespace winnow::eval
