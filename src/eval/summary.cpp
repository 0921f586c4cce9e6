#include "eval/summary.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;

constexpr double kLeastFullScore = 0.5;  // of the full cache, for others to be compared with it
constexpr double kLeastFullPpl = 2;      // of real text
constexpr double kMostPplRatio = 100;

using GroupKey = std::tuple<std::string, int, std::string, std::string>;

GroupKey key_of(const Record& record) {
  return {record.task, record.n_tokens, record.question, record.policy};
}

struct Members {
  GroupKey key;
  std::vector<const Record*> records;  // by index
};

std::vector<Members> members_of(std::span<const Record> records) {
  std::vector<Members> groups;
  std::map<GroupKey, size_t> places;
  for (const Record& record : records) {
    const auto [place, is_new] = places.try_emplace(key_of(record), groups.size());
    if (is_new) {
      groups.push_back({.key = place->first, .records = {}});
    }
    groups[place->second].records.push_back(&record);
  }
  for (Members& group : groups) {
    std::ranges::sort(group.records, {}, &Record::index);
  }
  return groups;
}

std::map<std::string, Mean> metrics_of(std::span<const Record* const> records) {
  std::map<std::string, std::vector<double>> values;
  for (const Record* const record : records) {
    for (const auto& [name, value] : record->metrics) {
      values[name].push_back(value);
    }
  }
  std::map<std::string, Mean> metrics;
  for (const auto& [name, list] : values) {
    metrics[name] = {.value = mean(list), .interval = bootstrap_interval(list)};
  }
  if (const auto nll = metrics.find("nll"); nll != metrics.end()) {
    metrics["ppl"] = {
        .value = std::exp(nll->second.value),
        .interval = {std::exp(nll->second.interval.low), std::exp(nll->second.interval.high)}};
  }
  return metrics;
}

HeadSummary head_summary(std::span<const Record* const> records, const std::string& name) {
  HeadSummary summary;
  double n = 0;
  for (const Record* const record : records) {
    const auto found = record->heads.find(name);
    if (found == record->heads.end()) {
      continue;
    }
    const HeadValues& values = found->second;
    if (n == 0) {
      summary.means = values;
    } else if (std::ranges::equal(values, summary.means, {}, &std::vector<double>::size,
                                  &std::vector<double>::size)) {
      for (size_t layer = 0; layer < values.size(); ++layer) {
        std::ranges::transform(summary.means[layer], values[layer], summary.means[layer].begin(),
                               std::plus<>());
      }
    } else {
      continue;  // of no model that has the others' heads
    }
    ++n;
  }
  for (std::vector<double>& layer : summary.means) {
    for (double& sum : layer) {
      sum /= n;
    }
    summary.medians.push_back(layer.empty() ? std::nan("") : median(layer));
    summary.positive.push_back(layer.empty() ? std::nan("") : positive_share(layer));
  }
  return summary;
}

std::map<std::string, HeadSummary> heads_of(std::span<const Record* const> records) {
  std::map<std::string, HeadSummary> heads;
  for (const Record* const record : records) {
    for (const auto& [name, values] : record->heads) {
      if (!heads.contains(name)) {
        heads[name] = head_summary(records, name);
      }
    }
  }
  return heads;
}

// On the samples that both have; none where there is no such sample. Counts those whose prompts are not the same: a file
// that a task reads has changed.
std::optional<Difference> difference(std::span<const Record* const> records,
                                     std::span<const Record* const> others, int& n_unlike) {
  std::vector<double> first;
  std::vector<double> second;
  for (const Record* const record : records) {
    const auto other = std::ranges::find(others, record->index, &Record::index);
    if (other == others.end()) {
      continue;
    }
    const char* const metric = primary_metric(record->metrics);
    if (metric == nullptr || (*other)->prompt_hash != record->prompt_hash ||
        !(*other)->metrics.contains(metric)) {
      ++n_unlike;
      continue;
    }
    first.push_back(record->metrics.at(metric));
    second.push_back((*other)->metrics.at(metric));
  }
  if (first.empty()) {
    return std::nullopt;
  }
  return Difference{.comparison = compare(first, second), .p_holm = 1, .verdict = {}};
}

Group group_of(const Members& members, std::vector<const Record*>& measured) {
  Group group;
  std::tie(group.task, group.n_tokens, group.question, group.policy) = members.key;
  std::vector<double> compress_ms;
  std::vector<double> answer_ms;
  double full_bytes = 0;
  int n_over_budget = 0;
  int n_wrong_positions = 0;
  for (const Record* const record : members.records) {
    if (!record->refused.empty()) {
      if (std::ranges::count(group.refused, record->refused) == 0) {
        group.refused.push_back(record->refused);
      }
      continue;
    }
    measured.push_back(record);
    group.kv_bytes += static_cast<double>(record->kv_bytes);
    group.kv_peak_bytes += static_cast<double>(record->kv_peak_bytes);
    group.policy_bytes += static_cast<double>(record->policy_bytes);
    full_bytes += static_cast<double>(record->kv_full_bytes);
    group.rows_evicted += record->rows_evicted;
    group.nan_scores += record->nan_scores;
    compress_ms.push_back(record->compress_ms);
    answer_ms.push_back(record->answer_ms);
    n_over_budget += record->is_within_budget ? 0 : 1;
    n_wrong_positions += record->are_positions_true ? 0 : 1;
  }
  group.n = static_cast<int>(measured.size());
  if (group.n == 0) {
    return group;
  }
  group.metrics = metrics_of(measured);
  group.heads = heads_of(measured);
  group.kept_fraction = full_bytes > 0 ? group.kv_bytes / full_bytes : 1;
  group.kv_bytes /= group.n;
  group.kv_peak_bytes /= group.n;
  group.policy_bytes /= group.n;
  group.compress_ms = median(compress_ms);
  group.answer_ms = median(answer_ms);
  if (n_over_budget > 0) {
    group.notes.push_back("suspicious: " + std::to_string(n_over_budget) +
                          " samples hold more rows than the budget (guard: budget)");
  }
  if (n_wrong_positions > 0) {
    group.notes.push_back("suspicious: " + std::to_string(n_wrong_positions) +
                          " samples were fed wrong positions (guard: positions)");
  }
  if (std::ranges::any_of(measured, [](const Record* r) { return r->labels.contains("looped"); })) {
    group.notes.push_back("suspicious: the text repeats itself (guard: looped text)");
  }
  return group;
}

void note_by_full(const Group& full, Group& group) {
  const bool is_full = &full == &group;
  if (!is_full && group.n > 0 && group.rows_evicted == 0 && group.heads.empty()) {
    group.notes.push_back("not a comparison: no row was evicted");
  }
  if (const auto score = full.metrics.find("score");
      score != full.metrics.end() && score->second.value < kLeastFullScore) {
    group.notes.push_back("not a comparison: the full cache itself scores " +
                          rounded_text(score->second.value, 2) + " (guard: full score under " +
                          rounded_text(kLeastFullScore, 1) + ")");
  }
  const auto full_ppl = full.metrics.find("ppl");
  const auto ppl = group.metrics.find("ppl");
  if (full_ppl == full.metrics.end() || ppl == group.metrics.end()) {
    return;
  }
  if (full_ppl->second.value < kLeastFullPpl) {
    group.notes.push_back("suspicious: the full cache's perplexity is " +
                          rounded_text(full_ppl->second.value, 2) +
                          ", as on looped or memorised text (guard: perplexity under " +
                          rounded_text(kLeastFullPpl, 0) + ")");
  }
  if (ppl->second.value > kMostPplRatio * full_ppl->second.value) {
    group.notes.push_back("suspicious: the perplexity is more than " +
                          rounded_text(kMostPplRatio, 0) +
                          " times the full cache's (guard: perplexity ratio)");
  }
}

// Corrects the p-values of all arms of a task and length, and puts the comparisons into words.
void correct(std::vector<Group>& groups, std::optional<Difference> Group::*which) {
  std::map<std::pair<std::string, int>, std::vector<Difference*>> families;
  for (Group& group : groups) {
    if (group.*which) {
      families[{group.task, group.n_tokens}].push_back(&*(group.*which));
    }
  }
  for (const auto& [family, differences] : families) {
    std::vector<double> p;
    for (const Difference* const each : differences) {
      p.push_back(each->comparison.p);
    }
    const std::vector<double> corrected = holm(p);
    for (size_t i = 0; i < differences.size(); ++i) {
      differences[i]->p_holm = corrected[i];
      differences[i]->verdict = verdict(differences[i]->comparison, corrected[i]);
    }
  }
}

void check_baseline(const std::vector<Group>& groups, std::string_view baseline) {
  std::string policies;
  for (const Group& group : groups) {
    if (group.policy == baseline) {
      return;
    }
    if (policies.find("'" + group.policy + "'") == std::string::npos) {
      policies += (policies.empty() ? "'" : ", '") + group.policy + "'";
    }
  }
  if (!baseline.empty() && !groups.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the baseline '" + std::string(baseline) +
                                                 "' is not among the policies of the results (" +
                                                 policies + ")");
  }
}

ordered_json to_json(const Mean& mean) {
  return {{"mean", mean.value}, {"low", mean.interval.low}, {"high", mean.interval.high}};
}

ordered_json to_json(const std::optional<Difference>& difference) {
  if (!difference) {
    return nullptr;
  }
  const Comparison& comparison = difference->comparison;
  return {{"n", comparison.n},
          {"difference", comparison.difference},
          {"low", comparison.interval.low},
          {"high", comparison.interval.high},
          {"n_higher", comparison.n_first_higher},
          {"n_lower", comparison.n_second_higher},
          {"test", comparison.is_binary ? "mcnemar-exact" : "sign-exact"},
          {"p", comparison.p},
          {"p_holm", difference->p_holm},
          {"verdict", difference->verdict}};
}

ordered_json to_json(const Group& group) {
  ordered_json metrics = ordered_json::object();
  for (const auto& [name, value] : group.metrics) {
    metrics[name] = to_json(value);
  }
  ordered_json object = {{"task", group.task},
                         {"n_tokens", group.n_tokens},
                         {"question", group.question},
                         {"policy", group.policy},
                         {"n", group.n},
                         {"metrics", std::move(metrics)},
                         {"to_full", to_json(group.to_full)},
                         {"to_baseline", to_json(group.to_baseline)},
                         {"kept_fraction", group.kept_fraction},
                         {"kv_bytes", group.kv_bytes},
                         {"kv_peak_bytes", group.kv_peak_bytes},
                         {"policy_bytes", group.policy_bytes},
                         {"rows_evicted", group.rows_evicted},
                         {"nan_scores", group.nan_scores},
                         {"compress_ms", group.compress_ms},
                         {"answer_ms", group.answer_ms},
                         {"refused", group.refused},
                         {"notes", group.notes}};
  for (const auto& [name, heads] : group.heads) {
    object["heads"][name] = {
        {"mean", heads.means}, {"median", heads.medians}, {"positive", heads.positive}};
  }
  return object;
}

}  // namespace

Summary summarize(std::span<const Record> records, std::string_view baseline) {
  const std::vector<Members> all = members_of(records);
  std::vector<std::vector<const Record*>> measured(all.size());
  Summary summary;
  for (size_t i = 0; i < all.size(); ++i) {
    summary.groups.push_back(group_of(all[i], measured[i]));
  }
  // The group of a policy at the same task and length: in the same mode, or the only one there is.
  const auto find = [&](const Group& group, std::string_view policy) -> std::optional<size_t> {
    std::optional<size_t> found;
    for (size_t i = 0; i < summary.groups.size(); ++i) {
      const Group& other = summary.groups[i];
      if (other.task == group.task && other.n_tokens == group.n_tokens && other.policy == policy &&
          (other.question == group.question || policy == "full")) {
        found = i;
      }
    }
    return found;
  };
  check_baseline(summary.groups, baseline);
  for (size_t i = 0; i < summary.groups.size(); ++i) {
    Group& group = summary.groups[i];
    if (const auto full = find(group, "full")) {
      if (*full != i) {
        int n_unlike = 0;
        group.to_full = difference(measured[i], measured[*full], n_unlike);
        if (n_unlike > 0) {
          group.notes.push_back(
              "suspicious: " + std::to_string(n_unlike) +
              " samples have other prompts than the full cache's (guard: prompts)");
        }
      }
      note_by_full(summary.groups[*full], group);
    }
    if (!baseline.empty()) {
      const auto other = find(group, baseline);
      if (other && *other != i) {
        int n_unlike = 0;
        group.to_baseline = difference(measured[i], measured[*other], n_unlike);
      }
    }
  }
  correct(summary.groups, &Group::to_full);
  correct(summary.groups, &Group::to_baseline);
  return summary;
}

ordered_json to_json(const Summary& summary) {
  ordered_json groups = ordered_json::array();
  for (const Group& group : summary.groups) {
    groups.push_back(to_json(group));
  }
  return {{"groups", std::move(groups)}, {"problems", summary.problems}};
}

}  // namespace winnow::eval
