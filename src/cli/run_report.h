// What `winnow run` and `winnow compress` say about a run: the JSON of --json, --dry-run and --dump-kept, and the summary for people.
// Their fields are documented in docs/cli.md and stay stable.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/run.h"

namespace winnow::cli {

nlohmann::ordered_json rope_json(const model::Hyperparameters& hyper);
// `weights_option`: --weights, as given.
nlohmann::ordered_json plan_json(const engine::Run& run, const std::string& weights_option);
nlohmann::ordered_json result_json(const model::Model& model, const std::string& weights_option,
                                   const engine::Sequence& sequence,
                                   const engine::RunResult& result);
nlohmann::ordered_json compressed_json(const model::Model& model, const std::string& weights_option,
                                       const engine::Sequence& sequence,
                                       const engine::RunResult& result,
                                       const std::string& cache_path);
nlohmann::ordered_json kept_json(const engine::Sequence& sequence);

std::string plan_text(const engine::Run& run);
std::string result_text(const model::Model& model, const engine::Sequence& sequence,
                        const engine::RunResult& result);
std::string compressed_text(const model::Model& model, const engine::Sequence& sequence,
                            const engine::RunResult& result);

}  // namespace winnow::cli
