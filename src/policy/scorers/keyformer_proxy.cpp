// keyformer@proxy: h2o@proxy with noise that each row keeps, so that rows which came too late to be asked have a chance.
//
// Source    VeloxQuant-MLX's Keyformer cache, which sees no queries; an adaptation of Adnan et al., MLSys 2024, arXiv 2403.09054
// Rows      where there are more than the budget, that of the lowest s(j) + tau · g(j) goes, s as h2o@proxy has it without
//           decay and grace                                                                                             (1)
//           tau = tau_init + (tau_end - tau_init) · min(1, n / anneal)                                                  (2)
// Symbols   g(j) = a draw from a Gumbel distribution for each row, n = position of the newest row
// Needs     keys; one note a row
// Cost      as h2o@proxy
// Differs   draws hash seed and position. tau_init=0 is h2o@proxy with decay=1,n_recent=0. The authors' noise
//           is inside the softmax, and queries ask: the method keyformer

#include <limits>

#include "policy/key_proxy.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

struct KeyformerProxyOptions {
  float tau_init = 1;  // Eq. (2)
  float tau_end = 1;
  int anneal = 0;
  int seed = 0;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(tau_init, "tau_init", 0.0F, 1000.0F, "what noise is multiplied with; 0: there is none");
    v(tau_end, "tau_end", 0.0F, 1000.0F, "the same after anneal positions");
    v(anneal, "anneal", 0, 1 << 30, "positions between the two; 0: tau_init for ever");
    v(seed, "seed", 0, std::numeric_limits<int>::max(), "another seed draws other noise");
  }
};

}  // namespace

std::unique_ptr<Scorer> make_keyformer_proxy(OptionReader& reader) {
  const auto options = read_options<KeyformerProxyOptions>(reader);
  return std::make_unique<KeyProxy>(ProxyRule{.noise = {.tau_init = options.tau_init,
                                                        .tau_end = options.tau_end,
                                                        .anneal = options.anneal,
                                                        .seed = options.seed}});
}

}  // namespace winnow::policy
