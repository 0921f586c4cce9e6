#include "calibrate/calibrate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "calibrate/attention_check.h"
#include "calibrate/checkpoint.h"

namespace winnow::calibrate {
namespace {

using nlohmann::ordered_json;

constexpr int kMostBlocks = 32;
constexpr double kLooped = 0.5;  // share of repeated stretches

// A stretch of a text that is read as a prompt of its own.
struct Passage {
  size_t text;
  size_t begin;
  size_t n;
};

// Texts cut into passages of about equal length, at most n_most; at least two in all, so that one can be tried on another.
std::vector<Passage> passages_of(std::span<const eval::TokenText> texts, int n_bos,
                                 const Options& options) {
  const auto n_most = static_cast<size_t>(std::max(options.n_passage - n_bos, 1));
  std::vector<Passage> passages;
  size_t n_left = options.n_tokens > 0 ? static_cast<size_t>(options.n_tokens) : SIZE_MAX;
  for (size_t text = 0; text < texts.size() && n_left > 0; ++text) {
    const size_t n_tokens = std::min(texts[text].tokens.size(), n_left);
    n_left -= n_tokens;
    size_t n_parts = (n_tokens + n_most - 1) / n_most;
    if (texts.size() == 1) {
      n_parts = std::max<size_t>(n_parts, 2);
    }
    for (size_t part = 0; part < n_parts; ++part) {
      const size_t begin = part * n_tokens / n_parts;
      const size_t n = (part + 1) * n_tokens / n_parts - begin;
      if (n >= 2) {  // a single token has no context
        passages.push_back({.text = text, .begin = begin, .n = n});
      }
    }
  }
  return passages;
}

// The blocks that so many passages are spread over: an even number, none of them empty.
int n_blocks_for(size_t n_passages) {
  return n_passages < 2 ? 1 : static_cast<int>(std::min<size_t>(n_passages, kMostBlocks)) / 2 * 2;
}

int block_of(size_t passage, size_t n_passages, int n_blocks) {
  return static_cast<int>(passage * static_cast<size_t>(n_blocks) / n_passages);
}

// `n` of [0, n_all), each set equally likely, ascending (Floyd's algorithm); all where n is not less.
std::vector<int64_t> sample_indices(int64_t n_all, int64_t n, uint64_t seed) {
  std::set<int64_t> chosen;
  for (int64_t i = std::max<int64_t>(n_all - n, 0); i < n_all; ++i) {
    const uint64_t draw = splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(i));
    const auto index = static_cast<int64_t>(draw % static_cast<uint64_t>(i + 1));
    if (!chosen.insert(index).second) {
      chosen.insert(i);
    }
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<int64_t> sampled(const Options& options, int64_t n_all) {
  if (options.fit.estimator != Estimator::kSvd) {
    if (options.fit.sign == SignRule::kMajority) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the sign by majority looks at queries again, which the estimator svd keeps and "
                  "moments does not");
    }
    return {};
  }
  if (options.max_samples < 2 || options.fit.max_svd_samples < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "a singular value decomposition needs at least 2 samples");
  }
  return sample_indices(n_all, options.max_samples, options.seed);
}

// All that sums depend on.
std::string identity_of(const model::Model& model, std::span<const eval::TokenText> texts,
                        std::span<const Passage> passages, const Options& options) {
  const model::Rope& rope = model.hyper().rope;
  std::string text = model.fingerprint() + " " + policy::filter_frame_name(options.frame) + " " +
                     std::to_string(options.engine.n_ctx) + " " +
                     estimator_name(options.fit.estimator) + " " +
                     std::to_string(options.max_samples) + " " + std::to_string(options.seed) +
                     (options.keeps_query_moments ? " query moments" : "") + " " +
                     model::weight_option_name(model.weight_option()) + " " +
                     model::rope_scaling_name(rope.scaling);
  for (const float number : {rope.freq_base, rope.freq_scale, rope.ext_factor, rope.attn_factor,
                             rope.beta_fast, rope.beta_slow}) {
    text += " " + number_text(number);
  }
  text += " " + std::to_string(rope.n_ctx_orig);
  for (const Passage& passage : passages) {
    const auto tokens = std::span(texts[passage.text].tokens).subspan(passage.begin, passage.n);
    text += " " + content_hash(std::as_bytes(tokens));
  }
  return content_hash(std::as_bytes(std::span(text)));
}

void add_arrays(const Fit& fit, policy::FilterNotes& notes) {
  const auto n_layers = static_cast<size_t>(fit.filters.shape.n_layers);
  const auto n_heads = static_cast<size_t>(fit.filters.shape.n_heads);
  const auto n_kv_heads = static_cast<size_t>(fit.filters.shape.n_kv_heads);
  const auto dim = static_cast<size_t>(fit.filters.shape.head_dim);
  notes.arrays = {
      {"kappa", {n_layers, n_heads, 3}, fit.kappa},
      {"kv_kappa", {n_layers, n_kv_heads, 3}, fit.kv_kappa},
      {"half_cosine", {n_layers, n_heads}, fit.half_cosine},
      {"energy", {n_layers, n_heads}, fit.energy},
      {"mean_projections", {n_layers, n_heads, dim}, fit.mean_projections},
      {"mean_keys", {n_layers, n_kv_heads, dim}, fit.mean_keys},
      {"group_length", {n_layers, n_kv_heads}, fit.group_length},
  };
}

ordered_json method_json(const Options& options) {
  ordered_json json = {{"estimator", estimator_name(options.fit.estimator)},
                       {"sign", sign_rule_name(options.fit.sign)}};
  if (options.fit.estimator == Estimator::kSvd) {
    json["max_samples"] = options.max_samples;
    json["max_svd_samples"] = options.fit.max_svd_samples;
    json["seed"] = options.seed;
  }
  return json;
}

policy::FilterNotes notes_of(const model::Model& model, std::span<const eval::TokenText> texts,
                             const QueryStatistics& statistics, const Options& options) {
  const model::Rope& rope = model.hyper().rope;
  ordered_json json = method_json(options);
  json["rope_base"] = rope.freq_base;
  json["rope_scale"] = rope.freq_scale;
  json["rope_order"] = rope.mode == 0 ? "neighbours" : "halves";
  json["n_rot"] = rope.n_rot;
  json["n_passage"] = options.n_passage;
  ordered_json list = ordered_json::array();
  policy::FilterNotes notes;
  for (const eval::TokenText& text : texts) {
    list.push_back({{"name", text.name},
                    {"n_tokens", text.tokens.size()},
                    {"hash", content_hash(std::as_bytes(std::span(text.tokens)))}});
    notes.dataset += (notes.dataset.empty() ? "" : " ") + text.name;
  }
  json["texts"] = std::move(list);
  notes.json = json.dump();
  notes.model_id = model.file().has("general.name") ? model.file().string("general.name")
                                                    : std::string(model.family().architecture);
  notes.n_samples = options.fit.estimator == Estimator::kSvd
                        ? std::min<int64_t>(options.max_samples, statistics.n_tokens())
                        : statistics.n_tokens();
  return notes;
}

void check_length(size_t n_tokens, size_t n_passages, int head_dim) {
  if (n_tokens == 0) {
    throw Error(ErrorCode::kInvalidArgument, "the texts have no tokens to read in context");
  }
  const auto n_needed = 2 * static_cast<size_t>(head_dim);
  if (n_passages < 2 || n_tokens < n_needed) {
    throw Error(ErrorCode::kInvalidArgument,
                "the texts have " + std::to_string(n_tokens) +
                    " tokens, too few to find a direction in " + std::to_string(head_dim) +
                    " dimensions (at least " + std::to_string(n_needed) + ")");
  }
}

// A passage's tokens, behind the one that texts begin with.
std::vector<model::Token> prompt_of(const model::Model& model, std::span<const int32_t> text) {
  std::vector<model::Token> tokens;
  if (model.vocabulary().adds_bos()) {
    tokens.push_back(model.vocabulary().bos());
  }
  tokens.insert(tokens.end(), text.begin(), text.end());
  return tokens;
}

// The mean of what n passages at even distances say (attention_correlation); empty for none.
std::vector<float> checked(engine::Engine& engine, const model::Model& model,
                           const policy::Filters& filters, std::span<const eval::TokenText> texts,
                           std::span<const Passage> passages, int n,
                           const std::atomic<bool>* cancel) {
  std::vector<float> mean;
  const auto n_checked = std::min(static_cast<size_t>(n), passages.size());
  for (size_t i = 0; i < n_checked; ++i) {
    const Passage& passage = passages[(2 * i + 1) * passages.size() / (2 * n_checked)];
    const auto text = std::span(texts[passage.text].tokens).subspan(passage.begin, passage.n);
    const std::vector<float> found =
        attention_correlation(engine, model, filters, prompt_of(model, text), cancel);
    mean.resize(found.size());
    for (size_t head = 0; head < found.size(); ++head) {
      mean[head] += found[head] / static_cast<float>(n_checked);
    }
  }
  return mean;
}

void add_query_moments(const kernels::QueryMoments& moments, Calibration& result) {
  const policy::FilterShape& shape = result.fit.filters.shape;
  const auto dim = static_cast<size_t>(shape.head_dim);
  std::vector<double> mean(dim);
  std::vector<double> covariance(dim * dim);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_heads; ++head) {
      if (moments.watches(layer)) {  // zeros for layers that policies do not cut
        moments.mean(layer, head, mean);
        moments.covariance(layer, head, covariance);
      } else {
        std::ranges::fill(mean, 0.0);
        std::ranges::fill(covariance, 0.0);
      }
      result.query_means.insert(result.query_means.end(), mean.begin(), mean.end());
      result.query_covariances.insert(result.query_covariances.end(), covariance.begin(),
                                      covariance.end());
    }
  }
}

}  // namespace

Calibration calibrate(const model::Model& model, std::span<const eval::TokenText> texts,
                      const Options& options, const std::function<void(double)>& progress,
                      const std::atomic<bool>* cancel) {
  const model::Hyperparameters& hyper = model.hyper();
  const int n_bos = model.vocabulary().adds_bos() ? 1 : 0;
  const std::vector<Passage> passages = passages_of(texts, n_bos, options);
  size_t n_text = 0;
  size_t n_all = 0;
  std::vector<int32_t> read;  // without what was added before
  for (const Passage& passage : passages) {
    n_text += passage.n;
    n_all += passage.n + static_cast<size_t>(n_bos);
  }
  check_length(n_text, passages.size(), hyper.head_dim);

  QueryStatistics statistics({.heads = {.n_layers = hyper.n_layers,
                                        .n_heads = hyper.n_heads,
                                        .n_kv_heads = hyper.n_kv_heads,
                                        .head_dim = hyper.head_dim},
                              .frame = options.frame,
                              .n_blocks = n_blocks_for(passages.size()),
                              .n_threads = options.engine.n_threads,
                              .sampled = sampled(options, static_cast<int64_t>(n_all))});
  Calibration result;
  result.statistics_bytes = QueryStatistics::bytes(statistics.shape());
  result.n_passages = static_cast<int>(passages.size());
  Checkpoint checkpoint(options.checkpoint, identity_of(model, texts, passages, options));
  const policy::Policy full = policy::Policy::full({.query_moments = options.keeps_query_moments});
  kernels::QueryMoments moments = engine::query_moments(hyper, full);
  result.n_resumed = checkpoint.load(statistics, moments);

  engine::Engine engine(model, options.engine);
  const Stopwatch stopwatch;
  double saved_ms = 0;
  size_t n_read = 0;
  for (size_t i = 0; i < passages.size(); ++i) {
    const Passage& passage = passages[i];
    const auto text = std::span(texts[passage.text].tokens).subspan(passage.begin, passage.n);
    read.insert(read.end(), text.begin(), text.end());
    const std::vector<model::Token> tokens = prompt_of(model, text);
    n_read += tokens.size();
    if (i < static_cast<size_t>(result.n_resumed)) {
      continue;
    }
    engine::Sequence sequence(engine::cache_shape(hyper, cache::RowType::kF16, cache::RowType::kF16,
                                                  full, static_cast<int>(tokens.size())),
                              full);
    sequence.moments = std::move(moments);
    statistics.begin_passage(block_of(i, passages.size(), statistics.shape().n_blocks));
    const engine::Feed feed{.sequence = &sequence,
                            .tokens = tokens,
                            .logits = engine::WantedLogits::kNone,
                            .observer = &statistics};
    engine.feed({&feed, 1}, {.progress = {}, .cancel = cancel});
    moments = std::move(sequence.moments);
    statistics.end_passage(std::ssize(tokens));
    if (progress) {
      progress(static_cast<double>(n_read) / static_cast<double>(n_all));
    }
    if (stopwatch.ms() - saved_ms > options.checkpoint_ms) {
      checkpoint.save(statistics, moments, static_cast<int>(i) + 1);
      saved_ms = stopwatch.ms();
    }
  }
  result.feed_ms = stopwatch.ms();
  result.n_tokens = statistics.n_tokens();
  const double repeated = eval::repeated_share(read);
  if (repeated > kLooped) {
    log_warning(rounded_text(100 * repeated, 0) +
                " % of the text repeats what it said before: its queries are fewer than they look");
  }
  result.fit = fit_filters(statistics, options.fit, options.engine.n_threads);
  result.fit.filters.model = model.family().architecture;
  result.fit.filters.fingerprint = model.fingerprint();
  result.fit.filters.text_hashes = policy::text_stretches(read);
  result.fit.filters.correlation =
      checked(engine, model, result.fit.filters, texts, passages, options.n_checked, cancel);
  if (options.keeps_query_moments) {
    add_query_moments(moments, result);
  }
  result.notes = notes_of(model, texts, statistics, options);
  add_arrays(result.fit, result.notes);
  checkpoint.remove();
  return result;
}

Calibration calibrate(std::span<const float> queries, const policy::FilterShape& shape,
                      const Options& options) {
  const auto dim = static_cast<size_t>(shape.head_dim);
  const size_t n_of_head =
      queries.size() / (static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_heads));
  const size_t n = n_of_head / dim;
  if (n < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(n) + " queries of each head; at least 2 are needed");
  }
  QueryStatistics statistics({.heads = shape,
                              .frame = options.frame,
                              .n_blocks = n_blocks_for(n),
                              .n_threads = 1,
                              .sampled = sampled(options, static_cast<int64_t>(n))});
  const auto n_blocks = static_cast<size_t>(statistics.shape().n_blocks);
  for (size_t block = 0; block < n_blocks; ++block) {
    const size_t begin = block * n / n_blocks;
    const size_t n_here = (block + 1) * n / n_blocks - begin;
    statistics.begin_passage(static_cast<int>(block));
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      for (int head = 0; head < shape.n_heads; ++head) {
        const size_t at =
            static_cast<size_t>(layer * shape.n_heads + head) * n_of_head + begin * dim;
        statistics.add(layer, head, queries.subspan(at, n_here * dim));
      }
    }
    statistics.end_passage(static_cast<int64_t>(n_here));
  }
  Calibration result;
  result.n_tokens = statistics.n_tokens();
  result.n_passages = static_cast<int>(n_blocks);
  result.statistics_bytes = QueryStatistics::bytes(statistics.shape());
  result.fit = fit_filters(statistics, options.fit, options.engine.n_threads);
  result.notes = {.model_id = "queries",
                  .n_samples = options.fit.estimator == Estimator::kSvd
                                   ? static_cast<int64_t>(statistics.shape().sampled.size())
                                   : statistics.n_tokens(),
                  .dataset = "queries",
                  .json = method_json(options).dump()};
  add_arrays(result.fit, result.notes);
  return result;
}

std::string format_calibration(const Calibration& calibration) {
  return policy::format_filters(calibration.fit.filters, calibration.notes);
}

std::string format_with_query_moments(const Calibration& calibration) {
  policy::Filters filters = calibration.fit.filters;
  filters.query_means = calibration.query_means;
  filters.query_covariances = calibration.query_covariances;
  return policy::format_filters(filters, calibration.notes);
}

}  // namespace winnow::calibrate
