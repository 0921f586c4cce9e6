// Times what a policy does, phase by phase, on generated rows and beside what the machine needs for the same bytes.
#pragma once

#include <optional>
#include <vector>

#include "cache/rows.h"
#include "policy/policy.h"

namespace winnow::engine {

struct PolicyBenchmarkOptions {
  int n_rows = 4096;
  int n_kv_heads = 8;
  int head_dim = 128;
  cache::RowType row_type = cache::RowType::kF16;
  int chunk = 16;  // rows that arrive at once where rows are evicted as they come
  int n_threads = 1;
  int n_repetitions = 15;  // measured, after one that warms up
};

// Milliseconds of each repetition, for one layer of n_kv_heads heads with n_rows rows each.
struct PolicyTimes {
  std::vector<double> score;
  std::vector<double>
      read;  // the bytes that scores are made of, plainly; empty where there are none
  std::vector<double> select;
  std::vector<double> select_ranks;  // of scores with 128 values
  std::vector<double> select_two;    // of scores with two
  std::vector<double> select_equal;
  std::vector<double> compact;    // moving the kept rows together, and giving back what they leave
  std::vector<double> copy;       // the kept rows, from where they lie to memory in use
  std::vector<double> give_back;  // keeping as many rows that need not move: the same pages go
  std::vector<double> one_go;     // score, select, merge and compact
  std::vector<double> chunked;    // the same, when is_due() says so after a chunk, and at the end
  // Writing the rows with their static scores and without; empty where the policy needs none.
  std::vector<double> append;
  std::vector<double> append_without;
};

struct PolicyBenchmarkResult {
  PolicyTimes times;
  double read_bytes = 0;
  double moved_bytes = 0;  // of the rows kept, once
  int budget_rows = 0;
  int n_chunked_evictions = 0;
};

// The policy is not `full`. Throws invalid_argument where it keeps all the rows, and what Cache and resolve() throw.
PolicyBenchmarkResult benchmark_policy(const policy::Policy& policy,
                                       const PolicyBenchmarkOptions& options);

}  // namespace winnow::engine
