// Replays on a sequence: what a policy needs to know of a document before its first cut (engine/replay.h).

#include <algorithm>
#include <vector>

#include "base/stopwatch.h"
#include "engine/admission.h"
#include "engine/device_runner.h"
#include "engine/engine.h"
#include "engine/output_projection.h"
#include "engine/replay_scores.h"

namespace winnow::engine {
namespace {

// The column mass of all heads [n_layers, n_kv_heads], where the cache stores it.
std::vector<std::vector<int64_t>> copy_mass(cache::Cache& cache) {
  std::vector<std::vector<int64_t>> copy;
  const cache::CacheShape& shape = cache.shape();
  for (int layer = 0; shape.stores_mass && layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      const int64_t* const mass = cache.mass(layer, kv_head);
      copy.emplace_back(mass, mass + cache.rows(layer, kv_head).n);
    }
  }
  return copy;
}

void restore_mass(const std::vector<std::vector<int64_t>>& copy, cache::Cache& cache) {
  for (size_t head = 0; head < copy.size(); ++head) {
    const auto n_kv_heads = static_cast<size_t>(cache.shape().n_kv_heads);
    std::ranges::copy(copy[head], cache.mass(static_cast<int>(head / n_kv_heads),
                                             static_cast<int>(head % n_kv_heads)));
  }
}

}  // namespace

Sequence Engine::fork(const Sequence& sequence, ForkOptions options) {
  if (options.policy) {
    check_suits(*options.policy, model_);
    if (device_) {
      check_gathered_on_gpu(*options.policy);
    }
  }
  if (device_) {
    options.make_rows = [this](const cache::CacheShape& shape) { return make_rows(shape); };
  }
  const bool is_replayed = options.policy && options.policy->needs().replay.is_wanted() &&
                           !options.replays.empty() &&
                           !has_replay_scores(sequence, *options.policy);
  if (!is_replayed) {
    return engine::fork(sequence, std::move(options), evictor_);
  }
  const std::vector<ReplayText> replays = std::move(options.replays);
  options.is_cut = false;
  Sequence fork = engine::fork(sequence, std::move(options), evictor_);
  for (const ReplayText& text : replays) {
    replay(fork, text, {.progress = {}});
  }
  fork.evictions.count += evictor_.evict(fork) ? 1 : 0;
  return fork;
}

void Engine::replay_and_cut(const Feed& feed, const FeedOptions& options) {
  Sequence& sequence = *feed.sequence;
  if (sequence.policy.needs().replay.is_wanted()) {
    sequence.is_usable = true;
    try {
      replay(sequence, *feed.replay, options);
    } catch (...) {
      sequence.is_usable = false;
      throw;
    }
    sequence.is_usable = false;
  }
  sequence.evictions.count += evictor_.evict(sequence) ? 1 : 0;
}

void Engine::replay(Sequence& sequence, const ReplayText& text, const FeedOptions& options) {
  const Stopwatch stopwatch;
  const int n_fed = sequence.positions_fed;
  // What the policy's other parts remember is of the text alone.
  const kernels::QueryWindow queries = sequence.queries;
  const kernels::QueryMoments moments = sequence.moments;
  const kernels::ResidualSimilarity similarity = sequence.similarity;
  const std::vector<std::vector<int64_t>> mass = copy_mass(sequence.cache);
  const policy::Replay replay = sequence.policy.needs().replay;
  const std::vector<ReplayPart> parts = replay_parts(text, replay.chunk);
  double n_done = 0;  // parts
  FeedOptions feed_options{.eviction = PromptEviction::kNever, .progress = {}};
  feed_options.cancel = options.cancel;
  if (options.progress) {
    feed_options.progress = [&](double fraction) {
      options.progress((n_done + fraction) / static_cast<double>(parts.size()));
    };
  }
  for (const ReplayPart& part : parts) {
    const ReplayScores::Part of_part{.n_sink = sequence.policy.options().n_sink,
                                     .begin = part.begin,
                                     .end = part.end,
                                     .first_pos = n_fed,
                                     .n_tokens = static_cast<int>(part.tokens.size()),
                                     .weighs_outputs = replay.weighs_outputs};
    ReplayScores scores(sequence.cache, step_.shape(), of_part, options_.n_threads);
    const Feed feed{.sequence = &sequence,
                    .tokens = part.tokens,
                    .logits = WantedLogits::kNone,
                    .observer = &scores};
    this->feed({&feed, 1}, feed_options);
    scores.write(OutputProjection(model_), evictor_.parallel(), sequence.cache);
    peak_.scratch_bytes = std::max(
        peak_.scratch_bytes,
        step_.scratch_bytes() + ReplayScores::bytes(sequence.cache.shape(), step_.shape().n_heads,
                                                    of_part, options_.n_threads));
    sequence.cache.trim(n_fed);
    sequence.positions_fed = n_fed;
    ++n_done;
  }
  sequence.queries = queries;
  sequence.moments = moments;
  sequence.similarity = similarity;
  restore_mass(mass, sequence.cache);
  sequence.replay_ms += stopwatch.ms();
}

}  // namespace winnow::engine
