// keyformer: h2o with noise that each row keeps, so that rows which few queries have seen have a chance.
//
// Source    Adnan et al., MLSys 2024, arXiv 2403.09054
// Score     additive: s(j) = Σ_t a(t, j) + tau · g(j), a = mean over the query heads of the KV head of causal softmax over the
//           visible rows, t all queries fed since row j was                                                             (1)
//           softmax:  s(j) = mean over the last w queries t and the query heads of
//           softmax over j <= t of (q(t) · k(j) · scale + g(j)) / tau                                                   (2)
//           tau = tau_init + (tau_end - tau_init) · min(1, n / anneal)                                                  (3)
// Symbols   j = row, g(j) = a draw from a Gumbel distribution for each row, n = positions fed, w = obs_window
// Needs     additive: column mass; softmax: keys and the last obs_window queries after rotation
// Cost      additive: 8 bytes a row; softmax: a product of each of w queries of each query head with all rows
// Differs   the authors have (2), summed over all queries with a new draw each time, and a set of rows for each query head; here
//           noise is a hash of seed and position, so that what is kept does not depend on how often one
//           asks, and (2) asks the last queries. (1) is the form that h2o's sums allow. tau_init=0 in (1) is h2o

#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/frozen_noise.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct KeyformerOptions {
  std::string noise = "additive";
  float tau_init = 1;  // Eq. (3)
  float tau_end = 1;
  int anneal = 0;
  int obs_window = 64;  // w
  int seed = 0;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(noise, "noise", {"additive", "softmax"},
      "added to sums of attention, or to what the last queries say before their softmax");
    v(tau_init, "tau_init", 0.0F, 1000.0F,
      "what noise is multiplied with; noise=softmax: what is divided by it");
    v(tau_end, "tau_end", 0.0F, 1000.0F, "the same after anneal positions");
    v(anneal, "anneal", 0, 1 << 30, "positions between the two; 0: tau_init for ever");
    v(obs_window, "obs_window", 1, 4096, "noise=softmax: how many of the last queries are asked");
    v(seed, "seed", 0, std::numeric_limits<int>::max(), "another seed draws other noise");
  }
};

class Keyformer final : public Scorer {
 public:
  explicit Keyformer(const KeyformerOptions& options)
      : options_(options),
        noise_({.tau_init = options.tau_init,
                .tau_end = options.tau_end,
                .anneal = options.anneal,
                .seed = options.seed}) {}

  Needs needs() const override {
    return is_additive() ? Needs{.column_mass = true}
                         : Needs{.keys = true, .n_queries = options_.obs_window};
  }
  bool may_be_negative() const override { return is_additive(); }

  // rows.mass [n_cached], or queries [n_heads, obs_window, head_dim], rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> visible =
        cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> worth = scratch.take_filled(visible.size(), 0.0F);
    const std::span<float> noise = scratch.take<float>(visible.size());
    for (size_t i = 0; i < visible.size(); ++i) {
      noise[i] = static_cast<float>(frozen_gumbel(options_.seed, rows.positions[visible[i]]));
    }
    const double tau = noise_.tau(layer.n_positions);
    if (is_additive()) {
      WINNOW_CHECK(rows.mass != nullptr);
      const double unit = 1 / (kernels::kMassScale * layer.attention.gqa_group_size());
      for (size_t i = 0; i < visible.size(); ++i) {
        worth[i] = static_cast<float>(static_cast<double>(rows.mass[visible[i]]) * unit +
                                      tau * static_cast<double>(noise[i]));  // Eq. (1)
      }
    } else {
      ask(layer, kv_head, visible, noise, static_cast<float>(1 / tau), scratch, worth);
    }
    score_visible(visible, worth, 1, scores);
  }

 private:
  bool is_additive() const { return options_.noise == "additive"; }

  // Eq. (2)
  void ask(const LayerView& layer, int kv_head, std::span<const int> visible,
           std::span<const float> noise, float inverse_tau, Scratch& scratch,
           std::span<float> worth) const {
    const int n_queries = n_remembered(layer, options_.obs_window);
    const int end_pos = layer.queries->end_pos(layer.layer);
    const int group = layer.attention.gqa_group_size();
    const float share = 1.0F / static_cast<float>(n_queries * group);
    const std::span<float> logits = scratch.take<float>(visible.size());
    for (int pos = end_pos - n_queries; pos < end_pos; ++pos) {
      const std::span<const int> slots =
          seen_slots(layer.heads[static_cast<size_t>(kv_head)], visible, pos);
      const std::span<float> weights = logits.first(slots.size());
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        query_logits(layer, kv_head, head, pos, slots, scratch, weights);
        for (size_t i = 0; i < weights.size(); ++i) {
          weights[i] = (weights[i] + noise[i]) * inverse_tau;
        }
        kernels::softmax(weights);
        for (size_t i = 0; i < weights.size(); ++i) {
          worth[i] += std::isnan(weights[i]) ? 0.0F : weights[i] * share;
        }
      }
    }
  }

  KeyformerOptions options_;
  FrozenNoise noise_;
};

}  // namespace

std::unique_ptr<Scorer> make_keyformer(OptionReader& reader) {
  const auto options = read_options<KeyformerOptions>(reader);
  if (options.noise == "softmax" &&
      (options.tau_init == 0 || (options.anneal > 0 && options.tau_end == 0))) {
    reader.add_problem("noise=softmax divides by tau: tau_init and tau_end must be above 0");
  }
  return std::make_unique<Keyformer>(options);
}

}  // namespace winnow::policy
