// Rows that come from the user instead of a model, so that anyone can see what a policy makes of them.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/rows.h"
#include "policy/policy.h"

namespace winnow::engine {

// Some layers whose heads all hold rows at the same positions.
struct Case {
  int n_layers = 1;
  int n_kv_heads = 0;
  int n_rows = 0;
  int head_dim = 0;
  int n_heads = 0;    // query heads, a multiple of n_kv_heads; 0: there are no queries
  int n_queries = 0;  // the last so many rows have theirs
  cache::RowType key_type = cache::RowType::kF32;
  cache::RowType value_type = cache::RowType::kF32;
  std::vector<float> keys;         // after rotation [n_layers, n_kv_heads, n_rows, head_dim]
  std::vector<float> values;       // the same shape; empty: there are none
  std::vector<float> queries;      // after rotation [n_layers, n_heads, n_queries, head_dim]
  std::vector<int32_t> positions;  // [n_rows], ascending, below kMaxCasePositions
  float scale = 0;                 // what q·k is multiplied with
  // [n_rot / 2] radians that elements i and i + n_rot / 2 of a query turn by together, a position; empty: unknown.
  std::vector<float> frequencies = {};
  std::vector<roles::Role> roles = {};  // of the tokens [n_rows]; empty: unknown
};

inline constexpr int kMaxCasePositions = 1 << 24;

struct CaseResult {
  int budget_rows = 0;        // per KV head, on average
  std::vector<float> scores;  // of the method [n_layers, n_kv_heads, n_rows]
  // The same after all transforms, as selection ranks them; the method's where nothing has to go.
  std::vector<float> final_scores;
  std::vector<uint8_t> kept;    // the same: 1 or 0
  std::vector<int64_t> n_kept;  // [n_layers, n_kv_heads]
  // Where the policy merges: the values afterwards, of value_type [n_layers, n_kv_heads, n_rows, head_dim]; those of rows that
  // go as they were.
  std::vector<float> values = {};
  int64_t nan_scores = 0;
};

// What a policy, not `full`, makes of the case as of a prompt that was read: column mass is that of all its queries.
// Throws invalid_argument, naming what the policy needs and the case does not have, and what Cache and resolve() throw.
CaseResult score_case(const Case& given, policy::Policy policy, int n_threads);

}  // namespace winnow::engine
