// The folder of an evaluation: config.json, samples.jsonl, summary.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "eval/record.h"

namespace winnow::eval {

// What samples.jsonl holds, and what it could not be read of.
struct Samples {
  std::vector<Record> records;
  std::vector<std::string> problems;  // a line each: "line 7: there is no 'task'"
  size_t n_bytes = 0;                 // of the whole lines
};

// Reads samples.jsonl of a folder, whole lines only: what a killed run left of its last one does not count. Where records have the same key the
// first counts, and the others are problems, as are records of other tasks, policies, lengths or samples than config.json has. Throws
// not_found, io, bad_data: a config without these.
Samples read_samples(const std::string& folder, const nlohmann::json& config);

// config.json of a folder. Throws not_found, io, bad_data.
nlohmann::json read_config(const std::string& folder);

// The keys in which two configs differ, with both values: "seed (0 there, 1 here)".
std::string config_differences(const nlohmann::json& there, const nlohmann::json& here);

// An evaluation's own folder while it runs.
class Results {
 public:
  // Makes the folder, or goes on in one that has the same config. Throws invalid_argument, naming what differs, io.
  Results(std::string folder, const nlohmann::ordered_json& config);

  // As read, and as added since.
  const std::vector<Record>& records() const { return samples_.records; }
  const std::vector<std::string>& problems() const { return samples_.problems; }
  bool contains(const Record& record) const { return keys_.contains(record.key()); }

  // Appends a line and has the disk keep it. Throws io.
  void add(const Record& record);
  // Throws io.
  void write_summary(const nlohmann::ordered_json& summary) const;

 private:
  std::string folder_;
  Samples samples_;
  std::set<RecordKey> keys_;  // of the samples
  std::optional<AppendFile> file_;
};

}  // namespace winnow::eval
