// rocketkv: a generated token reads as much as `read` rows hold, of more that are kept.
//
// Source    Behnam et al., ICML 2025, arXiv 2502.14051, sections 3.3 and 3.4
// Rows      page = min(floor(c), ceil(sqrt(c))) rows, c = n / read                                    (1)
//           r = round(d · page / c) channels                                                          (2)
// Ranks     u(P) = Σ_h Σ_c max(q(h, c) · low(P, c), q(h, c) · high(P, c)) over the r channels of greatest Σ_h |q(h, c)|,
//           as quest; pages of read / 2 rows in all are read, the newest among them                   (3)
// Symbols   n = rows that a head keeps by its budget, d = head_dim; P, h, low, high as for quest
// Needs     two bounds for each page: 2 / page of the bytes of keys, beside the rows (page = 3: two thirds)
// Cost      reads the bounds, and the rows of the pages that are read, for each token; all channels of the bounds, since
//           those of a page lie side by side, so that (2) saves nothing here
// Differs   this is the second of the authors' two stages. The first is snapkv:obs_window=32,kernel=63 with n = T / (T / read)^a
//           of the T rows of a prompt, a = min(0.2 + 0.06 log2(T / read), 0.8): a budget that is given here. There pages are
//           ranked by a softmax over approximate logits, here by the logits; there no layer reads all its rows, as here by
//           default

#include "policy/readers.h"

namespace winnow::policy {
namespace {

struct RocketkvOptions {
  kernels::PageRule rule = {.n_whole_layers = 0, .n_read = 512};

  template <typename Visitor>
  void visit(Visitor& v) {
    v(rule.n_read, "read", 1, 1 << 24,
      "a generated token reads what so many rows hold, where more are kept: half of it rows, half "
      "bounds of pages");
    v(rule.n_whole_layers, "whole_layers", 0, 4096, "the first layers read all their rows");
  }
};

}  // namespace

kernels::PageRule make_rocketkv(OptionReader& reader) {
  return read_options<RocketkvOptions>(reader).rule;
}

}  // namespace winnow::policy
