// Makes the filters of a model from text, or of queries that the user brings.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "calibrate/fit.h"
#include "engine/engine.h"
#include "eval/text_windows.h"
#include "model/model.h"

namespace winnow::calibrate {

struct Options {
  policy::FilterFrame frame = policy::FilterFrame::kPost;
  FitOptions fit = {};
  int n_passage = 2048;    // most tokens that are read at once, without what was read before
  int64_t n_tokens = 0;    // of the text, from its start; 0: all
  int max_samples = 3000;  // of a head's queries that a singular value decomposition is given
  uint64_t seed = 0;       // of their choice
  engine::EngineOptions engine = {};
  std::string checkpoint = {};   // a file to go on from, should reading be interrupted; empty: none
  double checkpoint_ms = 20000;  // time between two writings of it
  int n_checked = 1;  // passages that are read once more, to see what filters say of attention
  bool keeps_query_moments = false;  // mean and covariance of all queries before rotation, too
};

struct Calibration {
  Fit fit;
  policy::FilterNotes notes;            // what the file says beside the filters
  std::vector<float> query_means = {};  // as Filters has them; empty where they were not wanted
  std::vector<float> query_covariances = {};
  int64_t n_tokens = 0;
  int n_passages = 0;
  int n_resumed = 0;            // of them read before
  double feed_ms = 0;           // reading
  size_t statistics_bytes = 0;  // what was held for the queries
};

// Reads the texts. Throws invalid_argument (no text, or too little of it), what Engine::feed throws, cancelled, io, and what
// fit_filters() throws.
Calibration calibrate(const model::Model& model, std::span<const eval::TokenText> texts,
                      const Options& options, const std::function<void(double)>& progress,
                      const std::atomic<bool>* cancel);

// Of queries [n_layers, n_heads, n, head_dim], n >= 2, of which n_heads / n_kv_heads share a filter. Throws invalid_argument,
// and what fit_filters() throws.
Calibration calibrate(std::span<const float> queries, const policy::FilterShape& shape,
                      const Options& options);

// The file that says all of it, but for the moments of queries; and the one that has them too.
std::string format_calibration(const Calibration& calibration);
std::string format_with_query_moments(const Calibration& calibration);

}  // namespace winnow::calibrate
