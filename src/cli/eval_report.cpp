#include "cli/eval_report.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "eval/record.h"

namespace winnow::cli {
namespace {

using eval::Group;
using Row = std::vector<std::string>;

// Columns as wide as their widest cell; the first to the left, the others to the right.
std::string table_text(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  const auto width_of = [](const std::string& cell) {  // code points, not bytes
    return static_cast<size_t>(std::ranges::count_if(
        cell, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  };
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width_of(row[i]), ' ');
      const bool is_last = i + 1 == row.size();
      text += (i == 0 ? "" : "  ") + (i == 0 || is_last ? row[i] : padding + row[i]);
      text += i == 0 ? padding : "";
    }
    text += "\n";
  }
  return text;
}

std::string mean_text(const Group& group, const char* metric, int n_decimals) {
  const auto found = group.metrics.find(metric);
  if (found == group.metrics.end()) {
    return "-";
  }
  const eval::Mean& mean = found->second;
  const std::string value = rounded_text(mean.value, n_decimals);
  return group.n < 2 ? value
                     : value + " [" + rounded_text(mean.interval.low, n_decimals) + ", " +
                           rounded_text(mean.interval.high, n_decimals) + "]";
}

std::string value_text(const Group& group, const char* metric) {
  const auto found = group.metrics.find(metric);
  return found == group.metrics.end() ? "-" : rounded_text(found->second.value, 3);
}

std::string difference_text(const Group& group) {
  if (!group.to_full) {
    return "";
  }
  return rounded_text(group.to_full->comparison.difference, 3) + " (p " +
         rounded_text(group.to_full->p_holm, 3) + ": " + group.to_full->verdict + ")";
}

struct Column {
  const char* title;
  const char* metric;
  int n_decimals = 3;
  bool has_interval = true;
};

// What tables show of groups with this primary metric.
struct TableKind {
  std::string_view primary;
  std::vector<Column> columns;
  bool has_cache = true;  // rows are kept or go
};

const TableKind& table_kind(std::string_view primary) {
  static const TableKind kinds[] = {
      {"score", {{"score", "score"}, {"gold nll", "gold_nll"}}},
      {"nll",
       {{"ppl", "ppl"}, {"KL", "kl", 4}, {"top-1", "top1", 3, false}, {"top-5", "top5", 3, false}}},
      {"perturbation", {{"perturbation", "perturbation"}}},
      {"kappa",
       {{"kappa", "kappa"},
        {"positive", "positive"},
        {"certain", "certain"},
        {"ratio", "ratio", 1},
        {"of abs", "ratio_of_abs", 1},
        {"energy", "energy"}},
       /*has_cache=*/false},
      {"spearman",
       {{"median", "spearman"}, {"mean", "mean"}, {"positive", "positive"}, {"partial", "partial"}},
       /*has_cache=*/false},
  };
  const auto* const found = std::ranges::find(kinds, primary, &TableKind::primary);
  WINNOW_CHECK(found != std::end(kinds));
  return *found;
}

// Of these groups, which are those of a task and length.
std::string_view primary_of(std::span<const Group> groups) {
  for (const Group& group : groups) {
    if (const char* const name = eval::primary_metric(group.metrics)) {
      return name;
    }
  }
  return "score";
}

Row header(std::string_view primary) {
  const TableKind& kind = table_kind(primary);
  Row row{"policy"};
  if (kind.has_cache) {
    row.insert(row.end(), {"question", "n", "kept", "KV bytes"});
  }
  for (const Column& column : kind.columns) {
    row.emplace_back(column.title);
  }
  row.push_back(kind.has_cache ? std::string(primary) + " - full's" : "n");
  return row;
}

Row row_of(const Group& group, std::string_view primary) {
  const TableKind& kind = table_kind(primary);
  Row row{group.policy};
  if (kind.has_cache) {
    row.insert(row.end(), {group.question == "none" ? "" : group.question, std::to_string(group.n),
                           rounded_text(100 * group.kept_fraction, 1) + " %",
                           format_bytes(static_cast<size_t>(group.kv_bytes))});
  }
  for (const Column& column : kind.columns) {
    row.push_back(column.has_interval ? mean_text(group, column.metric, column.n_decimals)
                                      : value_text(group, column.metric));
  }
  row.push_back(kind.has_cache ? difference_text(group) : std::to_string(group.n));
  return row;
}

// What must be said of groups: each remark once, with the arms that it is about.
std::string remarks_text(std::span<const Group> groups) {
  std::vector<std::pair<std::string, std::vector<std::string>>> remarks;
  const auto add = [&remarks](const std::string& remark, const Group& group) {
    auto found = std::ranges::find(remarks, remark, &decltype(remarks)::value_type::first);
    if (found == remarks.end()) {
      found = remarks.insert(remarks.end(), {remark, {}});
    }
    found->second.push_back(group.policy +
                            (group.question == "none" ? "" : " (" + group.question + ")"));
  };
  for (const Group& group : groups) {
    for (const std::string& note : group.notes) {
      add(note, group);
    }
    for (const std::string& reason : group.refused) {
      add("refused: " + reason, group);
    }
  }
  std::string text;
  for (const auto& [remark, arms] : remarks) {
    text += "! ";
    for (size_t i = 0; arms.size() < groups.size() && i < arms.size(); ++i) {
      text += (i == 0 ? "" : ", ") + arms[i];
    }
    text += (arms.size() < groups.size() ? ": " : "all arms: ") + remark + "\n";
  }
  return text;
}

}  // namespace

std::string summary_text(const eval::Summary& summary) {
  std::string text;
  for (size_t begin = 0; begin < summary.groups.size();) {
    const Group& first = summary.groups[begin];
    size_t end = begin;
    while (end < summary.groups.size() && summary.groups[end].task == first.task &&
           summary.groups[end].n_tokens == first.n_tokens) {
      ++end;
    }
    const auto panel = std::span(summary.groups).subspan(begin, end - begin);
    const std::string_view primary = primary_of(panel);
    std::vector<Row> rows{header(primary)};
    for (const Group& group : panel) {
      if (group.n > 0) {
        rows.push_back(row_of(group, primary));
      }
    }
    text += (begin == 0 ? "" : "\n") + first.task + ", " + std::to_string(first.n_tokens) +
            " tokens\n" + table_text(rows) + remarks_text(panel);
    begin = end;
  }
  for (const std::string& problem : summary.problems) {
    text += "! samples.jsonl: " + problem + "\n";
  }
  return text;
}

}  // namespace winnow::cli
