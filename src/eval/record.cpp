#include "eval/record.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace winnow::eval {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Whether numbers that become integers of T are such: JSON's may be too large for it.
template <typename T>
bool are_numbers_held(const json& value, const T& /*to*/) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return !value.is_number() ||
           (value.is_number_unsigned()  ? std::in_range<T>(value.get<uint64_t>())
            : value.is_number_integer() ? std::in_range<T>(value.get<int64_t>())
                                        : false);
  }
  return true;
}
template <typename T>
bool are_numbers_held(const json& value, const std::vector<T>& /*to*/) {
  return std::ranges::all_of(value, [](const json& each) { return are_numbers_held(each, T{}); });
}

template <typename T>
void read(const json& object, const char* key, T& value) {
  const auto found = object.find(key);
  if (found == object.end()) {
    throw Error(ErrorCode::kBadData, std::string("there is no '") + key + "'");
  }
  if (!are_numbers_held(*found, value)) {
    throw Error(ErrorCode::kBadData,
                std::string("'") + key + "' has a number that is no integer, or too large");
  }
  try {
    found->get_to(value);
  } catch (const json::exception&) {
    throw Error(ErrorCode::kBadData, std::string("'") + key + "' is " + found->type_name() +
                                         " and not what is expected");
  }
}

// Names every field once, for both directions.
template <typename RecordType, typename Visitor>
void visit(RecordType& r, Visitor&& field) {
  field("task", r.task);
  field("n_tokens", r.n_tokens);
  field("index", r.index);
  field("question", r.question);
  field("policy", r.policy);
  field("refused", r.refused);
  field("id", r.id);
  field("labels", r.labels);
  field("prompt_hash", r.prompt_hash);
  field("n_prompt", r.n_prompt);
  field("n_document", r.n_document);
  field("answers", r.answers);
  field("n_generated", r.n_generated);
  field("metrics", r.metrics);
  field("budget_rows", r.budget_rows);
  field("kept_rows", r.kept_rows);
  field("rows_evicted", r.rows_evicted);
  field("nan_scores", r.nan_scores);
  field("evicted_during_prompt", r.evicted_during_prompt);
  field("kv_bytes", r.kv_bytes);
  field("kv_peak_bytes", r.kv_peak_bytes);
  field("kv_full_bytes", r.kv_full_bytes);
  field("policy_bytes", r.policy_bytes);
  field("is_within_budget", r.is_within_budget);
  field("are_positions_true", r.are_positions_true);
  field("prefill_ms", r.prefill_ms);
  field("compress_ms", r.compress_ms);
  field("answer_ms", r.answer_ms);
}

}  // namespace

ordered_json to_json(const Record& record) {
  ordered_json object;
  visit(record, [&](const char* key, const auto& value) { object[key] = value; });
  if (!record.heads.empty()) {
    object["heads"] = record.heads;
  }
  return object;
}

Record record_of(const json& object) {
  if (!object.is_object()) {
    throw Error(ErrorCode::kBadData, "a record is a JSON object");
  }
  Record record;
  visit(record, [&](const char* key, auto& value) { read(object, key, value); });
  if (object.contains("heads")) {
    read(object, "heads", record.heads);
  }
  if (record.refused.empty() && primary_metric(record.metrics) == nullptr) {
    std::string allowed;
    for (const char* const name : kPrimaryMetrics) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    throw Error(ErrorCode::kBadData,
                "'metrics' has none of those that arms are compared by (" + allowed + ")");
  }
  return record;
}

}  // namespace winnow::eval
