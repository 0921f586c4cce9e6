// From moments of queries to filters, and what can be said about how good they are.
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/query_statistics.h"
#include "policy/filters.h"

namespace winnow::calibrate {

enum class Estimator {
  kMoments,  // the first axis of the second moment of all queries
  kSvd,      // the first right singular vector of a sample, as Q-Filters was published
};
enum class SignRule {
  kSum,       // the sum of the projections is positive
  kMajority,  // more than half of the projections are; needs a sample
};

const char* estimator_name(Estimator estimator);  // "moments", "svd"
const char* sign_rule_name(SignRule rule);        // "sum", "majority"
// Throw invalid_argument with the list.
Estimator parse_estimator(const std::string& name);
SignRule parse_sign_rule(const std::string& name);

struct FitOptions {
  Estimator estimator = Estimator::kMoments;
  SignRule sign = SignRule::kSum;
  bool is_normalized = true;   // the mean of a group of query heads gets length 1
  int max_svd_samples = 3000;  // of a longer sample every so-manieth row
};

// Of a group whose mean is shorter, the filters point in all directions: it is guarded.
inline constexpr double kLeastGroupLength = 0.1;

struct Fit {
  policy::Filters filters;  // without what is known of the model
  // Mean projections on the direction that the other half of the text gives: [n_layers, heads, 3] the low end of a 95 %
  // interval, estimate, high end; by bootstrap over blocks.
  std::vector<float> kappa;        // of query heads, each on its own direction
  std::vector<float> kv_kappa;     // of KV heads: of the group's queries on its filter
  std::vector<float> half_cosine;  // [n_layers, n_heads]: between the directions of both halves
  std::vector<float>
      energy;  // [n_layers, n_heads]: the share of the first axis in the second moment
  std::vector<float>
      mean_projections;             // [n_layers, n_heads, head_dim]: of all queries, on every axis
  std::vector<float> mean_keys;     // [n_layers, n_kv_heads, head_dim], in the frame
  std::vector<float> group_length;  // [n_layers, n_kv_heads]: of the mean of the group's directions
};

// Throws bad_data where queries of a head are all zero or all the same; names layer and head.
Fit fit_filters(const QueryStatistics& statistics, const FitOptions& options, int n_threads);

}  // namespace winnow::calibrate
