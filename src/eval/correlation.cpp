#include "eval/correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/scratch.h"
#include "base/stopwatch.h"
#include "eval/rank_correlation.h"
#include "eval/received_attention.h"
#include "eval/statistics.h"
#include "eval/text_run.h"

namespace winnow::eval {
namespace {

// A head's scores; what is not a number is worth least.
std::vector<double> scores_of(const policy::Policy& policy, const policy::LayerView& layer,
                              int kv_head, Scratch& scratch) {
  policy::LayerView view = layer;
  view.n_sink = policy.options().n_sink;
  view.next_rotation = view.n_positions;
  const Scratch::Frame frame(scratch);
  const std::span<float> scores =
      scratch.take<float>(static_cast<size_t>(layer.heads[static_cast<size_t>(kv_head)].n));
  policy.scorer()->score(view, kv_head, scratch, scores);
  std::vector<double> list(scores.begin(), scores.end());
  std::ranges::replace_if(
      list, [](double score) { return std::isnan(score); }, -INFINITY);
  return list;
}

void check_layers(const model::Hyperparameters& hyper) {
  if (std::ranges::none_of(hyper.swa_windows, [](int window) { return window == 0; })) {
    throw Error(ErrorCode::kInvalidArgument,
                "all layers of the model have a window, so that policies score none");
  }
}

// Of a head's scores with the attention that its keys received, and without what both owe to the keys' positions.
struct HeadCorrelation {
  double spearman = 0;
  double partial = 0;
};

HeadCorrelation correlate(std::span<const double> scores, std::span<const double> attention,
                          const cache::HeadRows& rows) {
  const std::vector<double> positions(rows.positions, rows.positions + rows.n);
  const auto of = [](std::span<const double> a, std::span<const double> b) {
    return spearman(a, b).value_or(0);
  };
  const double both = of(scores, attention);
  return {.spearman = both,
          .partial = partial_correlation(both, of(scores, positions), of(attention, positions))};
}

std::vector<double> all_values(const HeadValues& heads) {
  std::vector<double> all;
  for (const std::vector<double>& layer : heads) {
    all.insert(all.end(), layer.begin(), layer.end());
  }
  return all;
}

std::map<std::string, double> metrics_of(const std::map<std::string, HeadValues>& heads) {
  const std::vector<double> all = all_values(heads.at("spearman"));
  return {{"spearman", median(all)},
          {"mean", mean(all)},
          {"positive", positive_share(all)},
          {"partial", median(all_values(heads.at("partial")))}};
}

}  // namespace

void Correlation::measure(const SampleId& sample, std::span<const Arm> arms,
                          const std::function<void(Record)>& done,
                          const std::atomic<bool>* cancel) {
  TextWindow window;
  try {
    window = window_of(sample, sample.n_tokens, sample.n_tokens);
    check_layers(model_.hyper());
  } catch (const Error& error) {
    refuse(sample, arms, error, done);
    return;
  }
  policy::Needs needs = needs_of(arms);
  needs.column_mass = true;
  TextRun run(model_, settings_, sample.n_tokens, needs, cancel);
  const Stopwatch prefill;
  run.read(window.tokens);
  const double prefill_ms = prefill.ms();

  const std::span<const policy::LayerView> layers = run.view();
  const int n_kv_heads = model_.hyper().n_kv_heads;
  const int n_heads = static_cast<int>(layers.size()) * n_kv_heads;
  const auto layer_of = [&](int item) -> const policy::LayerView& {
    return layers[static_cast<size_t>(item / n_kv_heads)];
  };
  std::vector<std::vector<double>> attention(static_cast<size_t>(n_heads));
  run.parallel().run(n_heads, [&](int item, int /*thread*/) {
    attention[static_cast<size_t>(item)] = received_attention(layer_of(item), item % n_kv_heads);
  });
  std::vector<Scratch> scratch(static_cast<size_t>(run.parallel().n_threads()));
  for (const Arm& arm : arms) {
    check_cancel(cancel);
    try {
      check_suits(arm.policy, window);
      if (arm.policy.needs().replay.is_wanted()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "policy '" + arm.policy.spec() +
                        "' has its scores from a replay, which there is none of here: they are "
                        "attention themselves");
      }
    } catch (const Error& error) {
      refuse(sample, {&arm, 1}, error, done);
      continue;
    }
    const Stopwatch scoring;
    std::map<std::string, HeadValues> heads;
    for (const char* const name : {"spearman", "partial"}) {
      heads[name].resize(static_cast<size_t>(model_.hyper().n_layers));
      for (const policy::LayerView& layer : layers) {
        heads[name][static_cast<size_t>(layer.layer)].resize(static_cast<size_t>(n_kv_heads));
      }
    }
    run.parallel().run(n_heads, [&](int item, int thread) {
      const policy::LayerView& layer = layer_of(item);
      const int kv_head = item % n_kv_heads;
      const std::vector<double>& of_head = attention[static_cast<size_t>(item)];
      const std::vector<double> scores =
          arm.is_full()
              ? of_head
              : scores_of(arm.policy, layer, kv_head, scratch[static_cast<size_t>(thread)]);
      const HeadCorrelation found =
          correlate(scores, of_head, layer.heads[static_cast<size_t>(kv_head)]);
      const auto set = [&](const char* name, double value) {
        heads.at(name)[static_cast<size_t>(layer.layer)][static_cast<size_t>(kv_head)] = value;
      };
      set("spearman", found.spearman);
      set("partial", found.partial);
    });
    Record record = record_on(window, sample, arm);
    record.metrics = metrics_of(heads);
    record.heads = std::move(heads);
    record.prefill_ms = prefill_ms;
    record.compress_ms = scoring.ms();
    done(std::move(record));
  }
}

}  // namespace winnow::eval
