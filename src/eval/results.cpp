#include "eval/results.h"

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"

namespace winnow::eval {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSamplesName = "samples.jsonl";

std::string path_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

std::string text_of(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? read_text_file(path) : "";
}

// What the records of an evaluation may be of.
class Planned {
 public:
  Planned(const json& config, const std::string& folder) try
      : tasks_(config.at("tasks").get<std::set<std::string>>()),
        policies_(config.at("policies").get<std::set<std::string>>()),
        lengths_(config.at("lengths").get<std::set<int>>()),
        n_(config.at("n").get<int>()) {
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kBadData,
                "the config.json of '" + folder + "' is none: " + error.what());
  }

  // Throws bad_data.
  void check(const Record& record) const {
    const auto refuse = [](const std::string& what) {
      throw Error(ErrorCode::kBadData, what + ", which config.json does not have");
    };
    if (!tasks_.contains(record.task)) {
      refuse("task '" + record.task + "'");
    }
    if (!policies_.contains(record.policy)) {
      refuse("policy '" + record.policy + "'");
    }
    if (!lengths_.contains(record.n_tokens)) {
      refuse("a length of " + std::to_string(record.n_tokens) + " tokens");
    }
    if (record.index < 0 || record.index >= n_) {
      refuse("sample " + std::to_string(record.index));
    }
  }

 private:
  std::set<std::string> tasks_;
  std::set<std::string> policies_;
  std::set<int> lengths_;
  int n_;
};

}  // namespace

std::string config_differences(const json& there, const json& here) {
  std::string list;
  const auto add = [&](const std::string& key) {
    const auto text = [&](const json& config) {
      return config.contains(key) ? config[key].dump() : std::string("nothing");
    };
    list +=
        (list.empty() ? "" : "; ") + key + " (" + text(there) + " there, " + text(here) + " here)";
  };
  for (const auto& [key, value] : here.items()) {
    if (!there.contains(key) || there[key] != value) {
      add(key);
    }
  }
  for (const auto& [key, value] : there.items()) {
    if (!here.contains(key)) {
      add(key);
    }
  }
  return list;
}

Samples read_samples(const std::string& folder, const json& config) {
  const Planned planned(config, folder);
  const std::string text = read_text_file(path_in(folder, kSamplesName));
  Samples samples;
  std::set<RecordKey> keys;
  int line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      break;
    }
    ++line_number;
    const std::string line = text.substr(begin, end - begin);
    samples.n_bytes = begin = end + 1;
    try {
      Record record = record_of(json::parse(line));
      if (!keys.insert(record.key()).second) {
        throw Error(ErrorCode::kBadData, "the sample and arm of an earlier line");
      }
      planned.check(record);
      samples.records.push_back(std::move(record));
    } catch (const json::exception&) {
      samples.problems.push_back("line " + std::to_string(line_number) + ": not JSON");
    } catch (const Error& error) {
      samples.problems.push_back("line " + std::to_string(line_number) + ": " + error.what());
    }
  }
  return samples;
}

json read_config(const std::string& folder) {
  const std::string path = path_in(folder, "config.json");
  try {
    return json::parse(read_text_file(path));
  } catch (const json::exception&) {
    throw Error(ErrorCode::kBadData, "'" + path + "' is not JSON");
  }
}

Results::Results(std::string folder, const ordered_json& config) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw Error(ErrorCode::kIo, "cannot make the folder '" + folder_ + "': " + error.message());
  }
  const std::string config_path = path_in(folder_, "config.json");
  const std::string samples_path = path_in(folder_, kSamplesName);
  if (text_of(config_path).empty()) {
    if (!text_of(samples_path).empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "'" + folder_ + "' has samples and no config.json; give another folder");
    }
    write_file_atomically(config_path, config.dump(2) + "\n");
  } else {
    const std::string list = config_differences(read_config(folder_), json::parse(config.dump()));
    if (!list.empty()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "'" + folder_ + "' has results of another evaluation: " + list + "; give another folder");
    }
  }
  file_.emplace(samples_path);
  if (!file_->lock()) {
    throw Error(ErrorCode::kInvalidArgument,
                "another process is writing to '" + folder_ + "'; give another folder, or wait");
  }
  samples_ = read_samples(folder_, json::parse(config.dump()));
  // A line that a killed run left unfinished would spoil the next one.
  file_->truncate(samples_.n_bytes);
  for (const Record& record : samples_.records) {
    keys_.insert(record.key());
  }
}

void Results::add(const Record& record) {
  const std::string line =
      to_json(record).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  file_->append(std::as_bytes(std::span(line)));
  // As it will be read again: an answer may end inside a character.
  samples_.records.push_back(record_of(json::parse(line)));
  keys_.insert(samples_.records.back().key());
}

void Results::write_summary(const ordered_json& summary) const {
  write_file_atomically(path_in(folder_, "summary.json"), summary.dump(2) + "\n");
}

}  // namespace winnow::eval
