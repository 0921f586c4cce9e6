// cam@proxy: h2o@proxy, whose rows leave their values to those with the most similar keys.
//
// Source    VeloxQuant-MLX's CaM cache, which sees no queries; an adaptation of Zhang et al., ICML 2024 (openreview LCTmppB165)
// Rows      go as with h2o@proxy, without decay and grace
// Values    t(e) = argmax over the rows t held that are no sinks of cos(k(e), k(t))                                    (1)
//           with probability clamp(s(e) / s(t), 0, 1):  v(t) <- (1 - w) v(t) + w v(e),  s(t) <- s(t) + s(e)             (2)
//           w = clamp(cos(k(e), k(t)), 0, 1); merge=mean: 1/2
// Symbols   e = row that goes, k and v = keys and values, s = the sums of h2o@proxy
// Needs     keys, values; one note a row
// Cost      as h2o@proxy, and for each row that goes one more product with all rows held
// Differs   the merger cam gives to the rows after e, and asks by the attention of queries. Keys are not merged. Draws hash
//           seed, layer and position. Where s(t) = 0 nothing is merged

#include "policy/key_proxy.h"
#include "policy/methods.h"

#include <limits>

namespace winnow::policy {
namespace {

struct CamProxyOptions {
  std::string merge = "sim_weighted";  // Eq. (2)
  bool gate = true;                    // Eq. (2): else always
  int seed = 0;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(merge, "merge", {"sim_weighted", "mean", "drop"}, "what a row leaves: w, a half, or nothing");
    v(gate, "gate", "merge at random, by what the row is worth beside the other");
    v(seed, "seed", 0, std::numeric_limits<int>::max(), "another seed merges other rows");
  }
};

}  // namespace

std::unique_ptr<Scorer> make_cam_proxy(OptionReader& reader) {
  const auto options = read_options<CamProxyOptions>(reader);
  ProxyRule rule{.is_gated = options.gate, .fold_seed = options.seed};
  if (options.merge != "drop") {
    rule.fold = options.merge == "mean" ? ProxyRule::Fold::kMean : ProxyRule::Fold::kBySimilarity;
  }
  return std::make_unique<KeyProxy>(rule);
}

}  // namespace winnow::policy
