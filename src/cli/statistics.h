// Numbers that several measurements come to.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace winnow::cli {

double median(std::vector<double> values);  // of at least one
// The least value that so large a share of the values does not exceed; of at least one.
double percentile(std::vector<double> values, double share);
// median, min, max, mean, stddev
nlohmann::ordered_json statistics_json(const std::vector<double>& values);

}  // namespace winnow::cli
