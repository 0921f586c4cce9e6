#include "eval/report_data.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "eval/pareto.h"
#include "eval/summary.h"
#include "policy/spec.h"

namespace winnow::eval {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostAnswers = 3;        // of an arm
constexpr size_t kMostAnswerBytes = 240;  // of an answer

// Metrics of which is known which way is better: these can be plotted against bytes.
struct PlottedMetric {
  const char* name;
  const char* label;
  bool is_higher_better;
};
constexpr PlottedMetric kPlottedMetrics[] = {
    {"score", "score", true},
    {"ppl", "perplexity", false},
    {"kl", "KL(full ‖ arm), nats a token", false},
    {"top1", "top-1 agreement with the full cache", true},
    {"top5", "top-5 agreement with the full cache", true},
    {"nll", "negative log-likelihood, nats a token", false},
    {"delta_ll", "log-likelihood minus the full cache's, a token", true},
    {"gold_nll", "negative log-likelihood of the right answer, nats a token", false},
    {"contained", "share of right answers contained in the answer", true},
    {"recall_precision", "recall times precision", true},
    {"f1", "F1 of words", true},
    {"all", "share of answers that follow all rules", true},
    {"exact", "share of exact answers", true},
    {"valid", "share of valid JSON", true},
    {"fields", "share of right fields", true},
    {"agreement", "share of tokens that the full cache would have chosen", true},
    {"kl_end", "KL(full ‖ arm) in the last quarter, nats a token", false},
    {"looped", "share of the text that loops", false},
    {"distinct_2", "different pairs of words over all", true},
    {"perturbation", "1 - cosine of attention's output and the full cache's", false},
    {"unseen", "share of the answer's words that the prompt does not contain", false},
};

// The first bytes of a text, cut between characters.
std::string clipped(const std::string& text) {
  if (text.size() <= kMostAnswerBytes) {
    return text;
  }
  size_t n = kMostAnswerBytes;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0U) == 0x80U) {
    --n;
  }
  return text.substr(0, n) + "…";
}

bool is_measured_by(const Record& record, const Group& group) {
  return record.refused.empty() && record.task == group.task && record.n_tokens == group.n_tokens &&
         record.question == group.question && record.policy == group.policy;
}

// [layer][KV head], the mean over the records, to two decimals.
ordered_json mean_kept_rows(std::span<const Record* const> records) {
  std::vector<std::vector<double>> sums;
  int n = 0;
  for (const Record* const record : records) {
    if (n == 0) {
      for (const std::vector<int>& layer : record->kept_rows) {
        sums.emplace_back(layer.begin(), layer.end());
      }
    } else {
      const auto has_shape = [](const std::vector<int>& a, const std::vector<double>& b) {
        return a.size() == b.size();
      };
      if (!std::ranges::equal(record->kept_rows, sums, has_shape)) {
        continue;  // of no model that has the others' heads
      }
      for (size_t layer = 0; layer < sums.size(); ++layer) {
        std::ranges::transform(sums[layer], record->kept_rows[layer], sums[layer].begin(),
                               std::plus<>());
      }
    }
    ++n;
  }
  for (std::vector<double>& layer : sums) {
    for (double& sum : layer) {
      sum = std::round(100 * sum / n) / 100;
    }
  }
  return sums;
}

// Means by the place of what was asked for; of tasks that have one.
ordered_json by_depth(std::span<const Record* const> records) {
  std::map<std::string, std::vector<const Record*>> places;
  for (const Record* const record : records) {
    if (const auto depth = record->labels.find("depth"); depth != record->labels.end()) {
      places[depth->second].push_back(record);
    }
  }
  ordered_json depths = ordered_json::array();
  ordered_json n = ordered_json::array();
  ordered_json metrics = ordered_json::object();
  for (const auto& [depth, members] : places) {
    for (const PlottedMetric& metric : kPlottedMetrics) {
      std::vector<double> values;
      for (const Record* const record : members) {
        if (const auto value = record->metrics.find(metric.name); value != record->metrics.end()) {
          values.push_back(value->second);
        }
      }
      if (!values.empty()) {
        ordered_json& means = metrics[metric.name];
        while (means.size() < depths.size()) {  // of depths that do not have the metric
          means.push_back(nullptr);
        }
        means.push_back(mean(values));
      }
    }
    depths.push_back(depth);
    n.push_back(members.size());
  }
  return {{"depth", std::move(depths)}, {"n", std::move(n)}, {"metrics", std::move(metrics)}};
}

ordered_json first_answers(std::span<const Record* const> records) {
  ordered_json list = ordered_json::array();
  for (const Record* const record : records) {
    if (record->answers.empty() || list.size() == kMostAnswers) {
      continue;
    }
    const auto score = record->metrics.find("score");
    list.push_back(
        {{"id", record->id},
         {"answer", clipped(record->answers.front())},
         {"score", score == record->metrics.end() ? json(nullptr) : json(score->second)}});
  }
  return list;
}

// "snapkv+adakv:n_recent=0,budget=10%" is "snapkv+adakv:n_recent=0" and "10%".
std::pair<std::string, std::string> method_and_budget(const std::string& policy) {
  const policy::Spec spec = policy::parse_spec(policy);
  std::string method = spec.method;
  for (const std::string& part : spec.parts) {
    method += "+" + part;
  }
  std::string budget;
  char separator = ':';
  for (const policy::GivenOption& option : spec.options) {
    if (option.name == "budget") {
      budget = option.value;
    } else {
      method += separator + option.name + "=" + option.value;
      separator = ',';
    }
  }
  return {method, budget};
}

ordered_json arm_json(const Group& group, std::span<const Record> records) {
  std::vector<const Record*> measured;
  for (const Record& record : records) {
    if (is_measured_by(record, group)) {
      measured.push_back(&record);
    }
  }
  std::ranges::sort(measured, {}, &Record::index);
  const auto [method, budget] = method_and_budget(group.policy);
  return {{"method", method},
          {"budget", budget},
          {"n_kept", mean_kept_rows(measured)},
          {"depths", by_depth(measured)},
          {"answers", first_answers(measured)}};
}

// What must not be believed is not the best either.
bool is_suspicious(const Group& group) {
  return std::ranges::any_of(
      group.notes, [](const std::string& note) { return note.starts_with("suspicious"); });
}

// Of a metric, among the groups of one question mode and those that have none, such as the full cache.
ordered_json front_json(const std::vector<Group>& groups, std::span<const size_t> members,
                        const PlottedMetric& metric, const std::string& question) {
  std::vector<size_t> candidates;
  std::vector<CostAndQuality> points;
  for (const size_t i : members) {
    const Group& group = groups[i];
    const auto found = group.metrics.find(metric.name);
    if (found == group.metrics.end() || is_suspicious(group) ||
        (group.question != question && group.question != "none")) {
      continue;
    }
    candidates.push_back(i);
    points.push_back(
        {.bytes = group.kv_bytes,
         .quality = metric.is_higher_better ? found->second.value : -found->second.value});
  }
  ordered_json indices = ordered_json::array();
  for (const size_t i : pareto_front(points)) {
    indices.push_back(candidates[i]);
  }
  return {{"metric", metric.name}, {"question", question}, {"groups", std::move(indices)}};
}

ordered_json fronts_json(const std::vector<Group>& groups, std::span<const size_t> members) {
  std::vector<std::string> questions;
  for (const size_t i : members) {
    if (groups[i].n > 0 && groups[i].question != "none" &&
        std::ranges::count(questions, groups[i].question) == 0) {
      questions.push_back(groups[i].question);
    }
  }
  if (questions.empty()) {
    questions.emplace_back("none");
  }
  ordered_json fronts = ordered_json::array();
  for (const PlottedMetric& metric : kPlottedMetrics) {
    const bool is_there = std::ranges::any_of(
        members, [&](size_t i) { return groups[i].metrics.contains(metric.name); });
    for (const std::string& question : questions) {
      if (is_there) {
        fronts.push_back(front_json(groups, members, metric, question));
      }
    }
  }
  return fronts;
}

// A panel for each task and length of a folder, in the order in which they came.
void add_panels(size_t folder, std::span<const Record> records, const std::vector<Group>& groups,
                ordered_json& panels) {
  std::vector<std::pair<std::string, int>> keys;
  std::map<std::pair<std::string, int>, std::vector<size_t>> members;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto key = std::pair(groups[i].task, groups[i].n_tokens);
    if (members[key].empty()) {
      keys.push_back(key);
    }
    members[key].push_back(i);
  }
  for (const auto& key : keys) {
    const std::vector<size_t>& list = members[key];
    const auto measured = std::ranges::find_if(records, [&](const Record& record) {
      return record.refused.empty() && record.task == key.first && record.n_tokens == key.second;
    });
    panels.push_back(
        {{"folder", folder},
         {"task", key.first},
         {"n_tokens", key.second},
         {"groups", list},
         {"primary",
          measured == records.end() ? json(nullptr) : json(primary_metric(measured->metrics))},
         {"fronts", fronts_json(groups, list)}});
  }
}

// Without what only a baseline changes.
json without_baseline(json summary) {
  if (summary.is_object() && summary.contains("groups") && summary["groups"].is_array()) {
    for (json& group : summary["groups"]) {
      if (group.is_object()) {
        group.erase("to_baseline");
      }
    }
  }
  return summary;
}

std::vector<std::string> problems_of(const ReportFolder& folder, const ordered_json& summary) {
  std::vector<std::string> problems;
  for (const std::string& problem : folder.samples.problems) {
    problems.push_back("samples.jsonl: " + problem + "; it is left out");
  }
  if (folder.summary.is_null()) {
    problems.emplace_back("there is no summary.json: the evaluation has not ended");
  } else if (without_baseline(folder.summary) != without_baseline(json::parse(summary.dump()))) {
    problems.emplace_back(
        "summary.json is not what samples.jsonl comes to; shown is what the samples come to");
  }
  const auto shard = folder.config.find("shard");
  if (shard != folder.config.end() && *shard != json{1, 1}) {
    problems.push_back("this is shard " + shard->dump() +
                       " of an evaluation; 'winnow eval merge' puts shards together");
  }
  return problems;
}

}  // namespace

ordered_json report_data(std::span<const ReportFolder> folders, const ReportOptions& options) {
  ordered_json metrics = ordered_json::object();
  for (const PlottedMetric& metric : kPlottedMetrics) {
    metrics[metric.name] = {{"label", metric.label}, {"is_higher_better", metric.is_higher_better}};
  }
  ordered_json list = ordered_json::array();
  ordered_json panels = ordered_json::array();
  for (const ReportFolder& folder : folders) {
    Summary summary = summarize(folder.samples.records, options.baseline);
    summary.problems = folder.samples.problems;
    ordered_json arms = ordered_json::array();
    for (const Group& group : summary.groups) {
      arms.push_back(arm_json(group, folder.samples.records));
    }
    add_panels(list.size(), folder.samples.records, summary.groups, panels);
    ordered_json as_json = to_json(summary);
    list.push_back({{"name", folder.name},
                    {"model", model_name(folder.config)},
                    {"config", ordered_json::parse(folder.config.dump())},
                    {"problems", problems_of(folder, as_json)},
                    {"summary", std::move(as_json)},
                    {"arms", std::move(arms)}});
  }
  return {{"title", options.title},     {"winnow", options.winnow},
          {"notes", options.notes},     {"metrics", std::move(metrics)},
          {"folders", std::move(list)}, {"panels", std::move(panels)}};
}

}  // namespace winnow::eval
