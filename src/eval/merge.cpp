#include "eval/merge.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "eval/evaluation.h"
#include "eval/experiments.h"
#include "eval/results.h"

namespace winnow::eval {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

Shard take_shard(json& config, const std::string& folder) {
  const auto found = config.find("shard");
  if (found == config.end() || !found->is_array() || found->size() != 2 ||
      !(*found)[0].is_number_integer() || !(*found)[1].is_number_integer()) {
    throw Error(ErrorCode::kBadData, "the config of '" + folder + "' has no shard [i, k]");
  }
  const Shard shard{.i = (*found)[0].get<int>(), .k = (*found)[1].get<int>()};
  config.erase(found);
  return shard;
}

// How many records a shard has once it has ended. Throws bad_data.
int expected_records(const json& config, const Shard& shard, const std::string& folder) try {
  int unit = 0;
  int n = 0;
  const auto n_policies = static_cast<int>(config.at("policies").size());
  std::vector<QuestionMode> wanted;
  for (const std::string name : config.at("question")) {
    wanted.push_back(parse_question_modes(name).front());
  }
  for (const std::string task : config.at("tasks")) {
    const ExperimentEntry* const experiment = find_experiment(task);
    const auto n_modes = std::ssize(experiment == nullptr ? wanted : modes_of(*experiment, wanted));
    const int n_arms = 1 + (n_policies - 1) * static_cast<int>(n_modes);
    const int n_samples = static_cast<int>(config.at("lengths").size()) * config.at("n").get<int>();
    for (int i = 0; i < n_samples; ++i) {
      n += unit++ % shard.k == shard.i - 1 ? n_arms : 0;
    }
  }
  return n;
} catch (const json::exception& error) {
  throw Error(ErrorCode::kBadData, "the config of '" + folder + "' is none: " + error.what());
}

std::string shard_text(int i, int k) {
  return std::to_string(i) + "/" + std::to_string(k);
}

}  // namespace

Summary merge(std::span<const std::string> folders, const std::string& output,
              std::string_view baseline) {
  if (folders.empty()) {
    refuse("no folder to merge is given");
  }
  std::optional<json> common;
  int k = 0;
  std::map<int, std::string> by_shard;
  for (const std::string& folder : folders) {
    json config = read_config(folder);
    const Shard shard = take_shard(config, folder);
    if (!common) {
      common = config;
      k = shard.k;
    }
    if (config != *common) {
      refuse("'" + folder + "' is of another evaluation than '" + folders.front() +
             "': " + config_differences(*common, config));
    }
    if (shard.k != k) {
      refuse("'" + folder + "' is shard " + shard_text(shard.i, shard.k) + ", and '" +
             folders.front() + "' one of " + std::to_string(k) + ": they overlap");
    }
    const auto [place, is_new] = by_shard.try_emplace(shard.i, folder);
    if (!is_new) {
      refuse("'" + folder + "' and '" + place->second + "' are both shard " +
             shard_text(shard.i, k));
    }
  }
  for (int i = 1; i <= k; ++i) {
    if (!by_shard.contains(i)) {
      refuse("shard " + shard_text(i, k) + " is missing");
    }
  }
  // All is read and checked before anything is written.
  std::vector<Record> records;
  std::set<RecordKey> keys;
  std::vector<std::string> problems;
  for (const auto& [i, folder] : by_shard) {
    Samples samples = read_samples(folder, *common);
    const int n_all = expected_records(*common, {i, k}, folder);
    const auto n_there = static_cast<int>(samples.records.size() + samples.problems.size());
    if (n_there < n_all) {
      refuse("'" + folder + "', shard " + shard_text(i, k) + ", has " + std::to_string(n_there) +
             " of " + std::to_string(n_all) + " records: it has not ended");
    }
    for (Record& record : samples.records) {
      if (!keys.insert(record.key()).second) {
        refuse("'" + folder + "' has a sample that another shard has too");
      }
      records.push_back(std::move(record));
    }
    for (const std::string& problem : samples.problems) {
      problems.push_back("shard " + shard_text(i, k) + ", " + problem);
    }
  }
  Summary summary = summarize(records, baseline);
  summary.problems = std::move(problems);
  ordered_json config = ordered_json::parse(common->dump());
  config["shard"] = {1, 1};
  Results results(output, config);
  if (!results.records().empty()) {
    refuse("'" + output + "' has samples already; give another folder");
  }
  for (const Record& record : records) {
    results.add(record);
  }
  results.write_summary(to_json(summary));
  return summary;
}

}  // namespace winnow::eval
