// Shards of an evaluation, measured apart, as one folder of results.
#pragma once

#include <span>
#include <string>

#include "eval/summary.h"

namespace winnow::eval {

// Writes config.json, samples.jsonl and summary.json of all shards to `output`, which must not have results yet. Throws
// invalid_argument: no folder, configs that differ in more than the shard, shards that overlap or are not all there;
// what read_config and read_samples throw.
Summary merge(std::span<const std::string> folders, const std::string& output,
              std::string_view baseline);

}  // namespace winnow::eval
