#include "eval/anisotropy.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/scratch.h"
#include "base/stopwatch.h"
#include "eval/numpy_random.h"
#include "eval/query_axes.h"
#include "eval/statistics.h"
#include "eval/text_run.h"
#include "kernels/activations.h"

namespace winnow::eval {
namespace {

using kernels::LayerActivations;
using kernels::QueryMoments;
using model::Token;

constexpr int kPassage = 2048;  // tokens that are read at once
constexpr int kNoiseHeads = 64;

// Of one layer, where heads stand one after another.
size_t head_index(const LayerActivations& shown, int head) {
  return static_cast<size_t>(shown.layer * shown.shape.n_heads + head);
}

// Turns of a query [n_rot] that leave it as it is, or take its rotation back.
class QueryTurns {
 public:
  explicit QueryTurns(bool is_before_rotation) : turns_back_(is_before_rotation) {}

  std::span<const float> at(const LayerActivations& shown, int token) {
    turns_.resize(shown.rotation->n_rot());
    kernels::turns_at(*shown.rotation, turns_back_ ? shown.first_rotation + token : 0, turns_);
    return turns_;
  }

 private:
  bool turns_back_;
  std::vector<float> turns_;
};

// Which of the tokens of a window are fitted to: n of n_all, evenly spread.
struct Selection {
  int n;
  int n_all;

  bool contains(int token) const {
    const auto count = [this](int64_t end) { return end * n / n_all; };
    return count(token + 1) > count(token);
  }
};

class MomentsOfText final : public kernels::ActivationObserver {
 public:
  MomentsOfText(const model::Hyperparameters& hyper, bool is_before_rotation, Selection selection)
      : moments_({.n_heads = hyper.n_heads,
                  .head_dim = hyper.head_dim,
                  .is_watched = std::vector<bool>(static_cast<size_t>(hyper.n_layers), true)}),
        is_before_rotation_(is_before_rotation),
        selection_(selection) {}

  void begin_passage(int first_token) { first_token_ = first_token; }

  void observe(const LayerActivations& shown, int thread, int n_threads) noexcept override {
    QueryTurns turns(is_before_rotation_);
    Scratch scratch;
    const Scratch::Frame frame(scratch);
    const auto block = scratch.take<float>(QueryMoments::scratch_floats(shown.shape.head_dim));
    for (int token = 0; token < shown.n_tokens; ++token) {
      if (!selection_.contains(first_token_ + shown.first_pos + token)) {
        continue;
      }
      const std::span<const float> turn = turns.at(shown, token);
      for (int head = thread; head < shown.shape.n_heads; head += n_threads) {
        moments_.add(shown.layer, head,
                     {.q = shown.query(token, head),
                      .stride = 0,
                      .n_tokens = 1,
                      .first_pos = shown.first_pos + token,
                      .turns = turn.data()},
                     *shown.rotation, block.data());
      }
    }
  }

  const QueryMoments& moments() const { return moments_; }

 private:
  QueryMoments moments_;
  bool is_before_rotation_;
  Selection selection_;
  int first_token_ = 0;
};

class ProjectionsOfText final : public kernels::ActivationObserver {
 public:
  ProjectionsOfText(const std::vector<policy::PrincipalAxes>& axes, bool is_before_rotation,
                    Selection selection)
      : heads_(axes.begin(), axes.end()),
        is_before_rotation_(is_before_rotation),
        selection_(selection) {}

  void observe(const LayerActivations& shown, int thread, int n_threads) noexcept override {
    QueryTurns turns(is_before_rotation_);
    std::vector<float> query(static_cast<size_t>(shown.shape.head_dim));
    for (int token = std::max(0, kernels::kUncountedQueries - shown.first_pos);
         token < shown.n_tokens; ++token) {
      if (!selection_.contains(shown.first_pos + token)) {
        continue;
      }
      const std::span<const float> turn = turns.at(shown, token);
      for (int head = thread; head < shown.shape.n_heads; head += n_threads) {
        kernels::before_rotation(*shown.rotation, turn, shown.query(token, head), query);
        heads_[head_index(shown, head)].add(query);
      }
    }
  }

  const std::vector<AxisProjections>& heads() const { return heads_; }

 private:
  std::vector<AxisProjections> heads_;  // [n_layers, n_heads]
  bool is_before_rotation_;
  Selection selection_;
};

std::vector<double> values_of(const std::vector<AxisProjections>& heads,
                              double (AxisProjections::*value)() const) {
  std::vector<double> values;
  for (const AxisProjections& head : heads) {
    values.push_back((head.*value)());
  }
  return values;
}

void add_metrics(const std::vector<AxisProjections>& heads, const std::string& suffix,
                 std::map<std::string, double>& metrics) {
  const std::vector<double> kappas = values_of(heads, &AxisProjections::kappa);
  metrics["kappa" + suffix] = median(kappas);
  metrics["positive" + suffix] = positive_share(kappas);
  metrics["ratio" + suffix] = median(values_of(heads, &AxisProjections::ratio));
  metrics["ratio_of_abs" + suffix] = median(values_of(heads, &AxisProjections::ratio_of_abs));
  metrics["energy" + suffix] = median(values_of(heads, &AxisProjections::energy));
}

// As of text, of normal noise: n_fit rows to fit to, and others.
void add_noise_metrics(int head_dim, int n_fit, uint64_t seed, kernels::ParallelFor& parallel,
                       std::map<std::string, double>& metrics) {
  QueryMoments moments({.n_heads = kNoiseHeads, .head_dim = head_dim, .is_watched = {true}});
  std::vector<std::optional<AxisProjections>> in_sample(kNoiseHeads);
  std::vector<std::optional<AxisProjections>> held_out(kNoiseHeads);
  parallel.run(kNoiseHeads, [&](int head, int /*thread*/) {
    const auto at = static_cast<size_t>(head);
    std::vector<float> row(static_cast<size_t>(head_dim));
    const auto draw = [&row](NumpyRandom& random) -> const std::vector<float>& {
      std::ranges::generate(row, [&] { return static_cast<float>(random.standard_normal()); });
      return row;
    };
    NumpyRandom random(seed + at);
    Scratch scratch;
    const Scratch::Frame frame(scratch);
    const auto block = scratch.take<float>(QueryMoments::scratch_floats(head_dim));
    for (int i = 0; i < n_fit; ++i) {
      moments.add(0, head,
                  {.q = draw(random).data(),
                   .stride = 0,
                   .n_tokens = 1,
                   .first_pos = kernels::kUncountedQueries,
                   .turns = nullptr},
                  kernels::Rotation{}, block.data());
    }
    held_out[at].emplace(query_axes(moments, 0, head));
    in_sample[at] = held_out[at];
    NumpyRandom again(seed + at);
    for (int i = 0; i < std::min(n_fit, kPassage); ++i) {
      in_sample[at]->add(draw(again));
    }
    for (int i = 0; i < kPassage; ++i) {
      held_out[at]->add(draw(random));
    }
  });
  const auto add = [&](const std::vector<std::optional<AxisProjections>>& found,
                       const std::string& suffix) {
    std::vector<AxisProjections> heads;
    for (const std::optional<AxisProjections>& head : found) {
      heads.push_back(*head);
    }
    add_metrics(heads, suffix, metrics);
  };
  add(held_out, ".noise");
  add(in_sample, ".noise_in_sample");
}

}  // namespace

void Anisotropy::measure(const SampleId& sample, std::span<const Arm> arms,
                         const std::function<void(Record)>& done, const std::atomic<bool>* cancel) {
  for (const Arm& arm : arms) {
    try {
      done(measure(sample, arm, cancel));
    } catch (const Error& error) {
      refuse(sample, {&arm, 1}, error, done);
    }
  }
}

Record Anisotropy::measure(const SampleId& sample, const Arm& arm,
                           const std::atomic<bool>* cancel) const {
  if (windows_.n < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "a window is held out from those that directions are fitted to: at least 2 are "
                "needed (-n 2)");
  }
  SampleId next = sample;
  next.index = (sample.index + 1) % windows_.n;
  const int n_all = std::max(sample.n_tokens, kPassage);
  TextWindow fitted = window_of(sample, n_all, std::min(n_all, kPassage));
  const TextWindow held_out = window_of(next, n_all, kPassage);
  fitted.is_looped |= held_out.is_looped;

  const Stopwatch stopwatch;
  const model::Vocabulary& vocabulary = model_.vocabulary();
  const auto read = [&](const TextWindow& window, int first,
                        kernels::ActivationObserver& observer) {
    const int n = std::min(kPassage, n_all - first);
    std::vector<Token> passage(window.tokens.begin() + first, window.tokens.begin() + first + n);
    if (first > 0 && vocabulary.adds_bos()) {
      passage.front() = vocabulary.bos();
    }
    TextRun(model_, settings_, n, {}, cancel).read(passage, &observer);
  };
  const model::Hyperparameters& hyper = model_.hyper();
  const Selection selection{.n = sample.n_tokens, .n_all = n_all};
  MomentsOfText moments(hyper, is_before_rotation_, selection);
  for (int first = 0; first < n_all; first += kPassage) {
    moments.begin_passage(first);
    read(fitted, first, moments);
  }
  kernels::ParallelFor parallel(settings_.engine.n_threads);
  std::vector<policy::PrincipalAxes> axes(static_cast<size_t>(hyper.n_layers * hyper.n_heads));
  parallel.run(hyper.n_layers * hyper.n_heads, [&](int item, int /*thread*/) {
    axes[static_cast<size_t>(item)] =
        query_axes(moments.moments(), item / hyper.n_heads, item % hyper.n_heads);
  });
  ProjectionsOfText in_sample(axes, is_before_rotation_, selection);
  read(fitted, 0, in_sample);
  ProjectionsOfText projections(axes, is_before_rotation_, {.n = 1, .n_all = 1});
  read(held_out, 0, projections);

  Record record = record_on(fitted, sample, arm);
  record.id += ", held out: " + held_out.name + "@" + std::to_string(held_out.begin);
  const std::vector<AxisProjections>& heads = projections.heads();
  for (const char* const name : {"kappa", "kappa_low", "kappa_high", "ratio"}) {
    record.heads[name].resize(static_cast<size_t>(hyper.n_layers));
  }
  double n_certain = 0;
  for (size_t i = 0; i < heads.size(); ++i) {
    const Interval interval = heads[i].kappa_interval();
    const size_t layer = i / static_cast<size_t>(hyper.n_heads);
    record.heads["kappa"][layer].push_back(heads[i].kappa());
    record.heads["kappa_low"][layer].push_back(interval.low);
    record.heads["kappa_high"][layer].push_back(interval.high);
    record.heads["ratio"][layer].push_back(heads[i].ratio());
    n_certain += interval.low > 0 ? 1 : 0;
  }
  add_metrics(heads, "", record.metrics);
  record.metrics["certain"] = n_certain / static_cast<double>(heads.size());
  add_metrics(in_sample.heads(), ".in_sample", record.metrics);
  add_noise_metrics(hyper.head_dim, sample.n_tokens,
                    sample.seed * 1000000 + static_cast<uint64_t>(sample.index) * 1000, parallel,
                    record.metrics);
  record.prefill_ms = stopwatch.ms();
  return record;
}

}  // namespace winnow::eval
