// winnow calibrate: makes the filters that the method qfilters scores by.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/npy.h"
#include "base/text.h"
#include "calibrate/calibrate.h"
#include "calibrate/import.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/statistics.h"
#include "cli/verbs.h"

namespace winnow::cli {
namespace {

using nlohmann::ordered_json;

struct CalibrateFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::string queries;
  std::string imported;
  int n_kv_heads = 0;
  std::string output;
  std::string statistics;
  std::string frame = "post";
  bool is_legacy_frame = false;
  std::string estimator = "moments";
  std::string sign = "sum";
  bool is_mean = false;
  calibrate::Options options;
  bool is_json = false;
  bool is_quiet = false;
};

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::kInvalidArgument, reason);
}

policy::FilterFrame parse_frame(const CalibrateFlags& flags) {
  if (flags.is_legacy_frame) {
    return policy::FilterFrame::kLegacy;
  }
  return flags.frame == "pre" ? policy::FilterFrame::kPre : policy::FilterFrame::kPost;
}

calibrate::Options options_of(const CalibrateFlags& flags) {
  calibrate::Options options = flags.options;
  options.frame = parse_frame(flags);
  options.fit.estimator = calibrate::parse_estimator(flags.estimator);
  options.fit.sign = calibrate::parse_sign_rule(flags.sign);
  options.fit.is_normalized = !flags.is_mean;
  options.engine = model_settings(flags.model).engine;
  options.keeps_query_moments = !flags.statistics.empty();
  return options;
}

void check_given(const CalibrateFlags& flags) {
  if (!flags.statistics.empty() && flags.texts.empty()) {
    refuse("--statistics are of the queries of texts that a model reads (-m, -f)");
  }
  if (!flags.imported.empty()) {
    if (flags.model.path.empty() || !flags.texts.empty() || !flags.queries.empty()) {
      refuse(
          "--import needs the model that the filters are of (-m), and neither texts nor queries");
    }
    return;
  }
  if (flags.queries.empty()) {
    if (flags.model.path.empty() || flags.texts.empty()) {
      refuse("calibrate needs a model (-m) and texts (-f), or an array of queries (--queries)");
    }
    if (flags.n_kv_heads > 0) {
      refuse("--kv-heads says how --queries are shared; a model says so itself");
    }
  } else if (!flags.model.path.empty() || !flags.texts.empty()) {
    refuse("--queries takes the place of a model and its texts");
  }
}

calibrate::Calibration calibrate_queries(const CalibrateFlags& flags,
                                         const calibrate::Options& options) {
  const std::string content = read_text_file(flags.queries);
  const NpyArray array = parse_npy(std::as_bytes(std::span(content)), flags.queries);
  constexpr size_t kMost = size_t{1} << 30;
  if (array.shape.size() != 4 || array.n_elements() == 0 ||
      std::ranges::any_of(array.shape, [](size_t n) { return n > kMost; })) {
    throw Error(ErrorCode::kBadData, flags.queries + ": of shape " + array.shape_text() +
                                         " (allowed: [n_layers, n_heads, n, head_dim])");
  }
  const std::vector<float> queries = npy_floats(array, flags.queries);
  const auto n_heads = static_cast<int>(array.shape[1]);
  const int n_kv_heads = flags.n_kv_heads > 0 ? flags.n_kv_heads : n_heads;
  if (n_heads % n_kv_heads != 0) {
    refuse("--kv-heads " + std::to_string(n_kv_heads) + " does not divide the " +
           std::to_string(n_heads) + " heads of " + flags.queries);
  }
  return calibrate::calibrate(queries,
                              {.n_layers = static_cast<int>(array.shape[0]),
                               .n_heads = n_heads,
                               .n_kv_heads = n_kv_heads,
                               .head_dim = static_cast<int>(array.shape[3])},
                              options);
}

calibrate::Calibration calibrate_model(const CalibrateFlags& flags, calibrate::Options options) {
  const model::Model model = load_model(flags.model);
  const std::vector<eval::TokenText> texts = eval::read_texts(flags.texts, model);
  options.n_passage = std::min(options.n_passage, model.hyper().n_ctx_scaled);
  options.checkpoint = flags.output + ".part";
  ProgressBar bar("calibrating", !flags.is_quiet);
  return calibrate::calibrate(
      model, texts, options, [&bar](double fraction) { bar.update(fraction); }, watch_interrupt());
}

double median_of(const std::vector<float>& values) {
  return median({values.begin(), values.end()});
}

// What is worth saying of the heads, from [n, 3] intervals.
ordered_json kappa_json(const std::vector<float>& kappa) {
  std::vector<float> estimates;
  int n_positive = 0;
  int n_clear = 0;  // the whole interval is above 0
  for (size_t i = 0; i < kappa.size(); i += 3) {
    estimates.push_back(kappa[i + 1]);
    n_positive += kappa[i + 1] > 0 ? 1 : 0;
    n_clear += kappa[i] > 0 ? 1 : 0;
  }
  return {{"n", estimates.size()},
          {"n_positive", n_positive},
          {"n_interval_positive", n_clear},
          {"median", median_of(estimates)}};
}

// Of the heads where it was measured; null where it was in none.
ordered_json correlation_json(std::vector<float> correlation) {
  std::erase_if(correlation, [](float each) { return std::isnan(each); });
  if (correlation.empty()) {
    return nullptr;
  }
  return {{"n", correlation.size()},
          {"median", median_of(correlation)},
          {"min", *std::ranges::min_element(correlation)},
          {"n_positive", std::ranges::count_if(correlation, [](float each) { return each > 0; })}};
}

ordered_json result_json(const CalibrateFlags& flags, const calibrate::Calibration& result) {
  const policy::Filters& filters = result.fit.filters;
  ordered_json guarded = ordered_json::array();
  const auto n_kv_heads = static_cast<size_t>(filters.shape.n_kv_heads);
  for (size_t i = 0; i < filters.is_guarded.size(); ++i) {
    if (filters.is_guarded[i]) {
      guarded.push_back({i / n_kv_heads, i % n_kv_heads});
    }
  }
  return {{"file", flags.output},
          {"model_id", result.notes.model_id},
          {"fingerprint", filters.fingerprint},
          {"frame", policy::filter_frame_name(filters.frame)},
          {"estimator", flags.estimator},
          {"sign", flags.sign},
          {"is_normalized", filters.is_normalized},
          {"n_layers", filters.shape.n_layers},
          {"n_heads", filters.shape.n_heads},
          {"n_kv_heads", filters.shape.n_kv_heads},
          {"head_dim", filters.shape.head_dim},
          {"n_tokens", result.n_tokens},
          {"n_passages", result.n_passages},
          {"n_resumed_passages", result.n_resumed},
          {"feed_ms", result.feed_ms},
          {"statistics_bytes", result.statistics_bytes},
          {"kappa_of_query_heads", kappa_json(result.fit.kappa)},
          {"kappa_of_kv_heads", kappa_json(result.fit.kv_kappa)},
          {"half_cosine",
           {{"median", median_of(result.fit.half_cosine)},
            {"min", *std::ranges::min_element(result.fit.half_cosine)}}},
          {"attention_correlation", correlation_json(filters.correlation)},
          {"energy_median", median_of(result.fit.energy)},
          {"group_length_min", *std::ranges::min_element(result.fit.group_length)},
          {"guarded", std::move(guarded)}};
}

std::string result_text(const ordered_json& json) {
  const auto number = [](const ordered_json& value, int n_decimals) {
    return rounded_text(value.get<double>(), n_decimals);
  };
  const ordered_json& kappa = json["kappa_of_kv_heads"];
  std::string text =
      json["file"].get<std::string>() + ": filters of " + json["n_layers"].dump() +
      " layers with " + json["n_kv_heads"].dump() + " KV heads, from " + json["n_tokens"].dump() +
      " queries of each query head\n" + "held-out kappa: median " + number(kappa["median"], 2) +
      ", above 0 in " + kappa["n_positive"].dump() + " of " + kappa["n"].dump() +
      " KV heads, with its whole interval in " + kappa["n_interval_positive"].dump() + "\n" +
      "cosine between halves of the text: median " + number(json["half_cosine"]["median"], 3) +
      ", lowest " + number(json["half_cosine"]["min"], 3) + "\n" +
      "energy of the first axis: median " + number(100 * json["energy_median"].get<double>(), 1) +
      " %\n";
  if (const ordered_json& correlation = json["attention_correlation"]; !correlation.is_null()) {
    text += "rank correlation of projections with attention: median " +
            number(correlation["median"], 3) + ", above 0 in " + correlation["n_positive"].dump() +
            " of " + correlation["n"].dump() + " KV heads, lowest " +
            number(correlation["min"], 3) + "\n";
  }
  for (const ordered_json& head : json["guarded"]) {
    text += "layer " + head[0].dump() + ", KV head " + head[1].dump() +
            ": its query heads' filters cancel each other; policies fall back to knorm there\n";
  }
  return text;
}

// Others' filters as a file of ours.
int import(const CalibrateFlags& flags) {
  const std::string content = read_text_file(flags.imported);
  const model::Model model = load_model(flags.model);
  const policy::Filters filters = calibrate::import_filters(
      std::as_bytes(std::span(content)), flags.imported, model,
      flags.is_legacy_frame ? policy::FilterFrame::kLegacy : policy::FilterFrame::kPre);
  const std::string name = std::filesystem::path(flags.imported).filename().string();
  write_file_atomically(flags.output, policy::format_filters(filters, {.model_id = name}));
  const auto n_guarded = std::ranges::count(filters.is_guarded, true);
  const ordered_json json = {{"file", flags.output},
                             {"imported", name},
                             {"fingerprint", filters.fingerprint},
                             {"frame", policy::filter_frame_name(filters.frame)},
                             {"n_layers", filters.shape.n_layers},
                             {"n_kv_heads", filters.shape.n_kv_heads},
                             {"head_dim", filters.shape.head_dim},
                             {"n_guarded", n_guarded}};
  if (flags.is_json) {
    write_output(json.dump(2) + "\n");
  } else if (!flags.is_quiet) {
    write_output(flags.output + ": filters of " + std::to_string(filters.shape.n_layers) +
                 " layers with " + std::to_string(filters.shape.n_kv_heads) + " KV heads from " +
                 name + ", frame " + policy::filter_frame_name(filters.frame) +
                 (n_guarded == 0 ? ""
                                 : "\n" + std::to_string(n_guarded) +
                                       " filters are zero; policies fall back to knorm there") +
                 "\n");
  }
  return 0;
}

int run_calibrate(const CalibrateFlags& flags) {
  if (flags.is_quiet) {
    set_log_level(LogLevel::kWarning);
  }
  check_given(flags);
  const calibrate::Options options = options_of(flags);
  std::vector<std::string> read = flags.texts;
  read.insert(read.end(), {flags.model.path, flags.queries, flags.imported});
  check_writable(flags.output, read);
  if (!flags.statistics.empty()) {
    check_writable(flags.statistics, read);
  }
  if (!flags.imported.empty()) {
    return import(flags);
  }
  const calibrate::Calibration result =
      flags.queries.empty() ? calibrate_model(flags, options) : calibrate_queries(flags, options);
  write_file_atomically(flags.output, calibrate::format_calibration(result));
  if (!flags.statistics.empty()) {
    write_file_atomically(flags.statistics, calibrate::format_with_query_moments(result));
  }
  const ordered_json json = result_json(flags, result);
  if (flags.is_json) {
    write_output(json.dump(2) + "\n");
  } else if (!flags.is_quiet) {
    write_output(result_text(json));
  }
  return 0;
}

}  // namespace

Verb add_calibrate(CLI::App& app) {
  const auto flags = std::make_shared<CalibrateFlags>();
  app.add_option("-f,--file", flags->texts, "texts to read; '-' is standard input");
  app.add_option("-o,--output", flags->output, "the file of filters, exactly so")->required();
  app.add_option("--statistics", flags->statistics,
                 "a second file, with mean and covariance of the queries before rotation too, for "
                 "expected-attention:stats=FILE");
  app.add_option("--check", flags->options.n_checked,
                 "passages that are read once more, to see how well projections predict attention")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option(
      "--queries", flags->queries,
      "an .npy of queries [n_layers, n_heads, n, head_dim] instead of a model and texts");
  app.add_option("--kv-heads", flags->n_kv_heads,
                 "KV heads that those of --queries share; without it each has its own")
      ->check(CLI::Range(1, 1 << 16));
  CLI::Option* const imported = app.add_option(
      "--import", flags->imported,
      "filters of the model that others have made, safetensors or .npz, instead of texts");
  CLI::Option* const frame =
      app.add_option("--frame", flags->frame,
                     "queries after rotation (post), as keys are cached, or before (pre)")
          ->check(CLI::IsMember({"post", "pre"}))
          ->capture_default_str();
  app.add_flag("--legacy-frame", flags->is_legacy_frame,
               "the mismatch that was published: filters from before rotation, for keys after it")
      ->excludes(frame);
  app.add_option("--estimator", flags->estimator,
                 "moments of all queries, or svd of a sample of them, as was published")
      ->capture_default_str();
  app.add_option("--sign", flags->sign,
                 "which way a direction points: the sum of projections, or with svd the majority")
      ->capture_default_str();
  app.add_flag("--no-renormalize", flags->is_mean,
               "leave the mean of a group's filters as short as it is, as the authors do");
  app.add_option("--max-samples", flags->options.max_samples, "svd: queries of each head")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app.add_option("--max-svd-samples", flags->options.fit.max_svd_samples,
                 "svd: of more samples, so many at even distances")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app.add_option("-s,--seed", flags->options.seed, "svd: seed of the choice")
      ->capture_default_str();
  app.add_option("--passage", flags->options.n_passage,
                 "tokens that are read together, without what was read before")
      ->check(CLI::Range(8, 1 << 20))
      ->capture_default_str();
  app.add_option("-n,--tokens", flags->options.n_tokens, "tokens of the texts to read; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_flag("--json", flags->is_json, "print JSON");
  app.add_flag("-q,--quiet", flags->is_quiet, "print nothing but errors");
  for (const char* const of_texts :
       {"--kv-heads", "--frame", "--estimator", "--sign", "--no-renormalize", "--max-samples",
        "--max-svd-samples", "--seed", "--passage", "--tokens"}) {
    imported->excludes(of_texts);
  }
  add_model_flags(app, flags->model);
  return [flags] { return run_calibrate(*flags); };
}

}  // namespace winnow::cli
