// h2o@proxy: h2o where keys stand in for queries, and rows go one by one as others come.
//
// Source    VeloxQuant-MLX's H2O cache, which sees no queries; an adaptation of Zhang et al., NeurIPS 2023, arXiv 2306.14048
// Score     s(j) <- decay · s(j) + a(j), for each row that comes, a = softmax over the rows j held of k_new · k(j) · scale   (1)
//           s(new) = 0, and 1 for the very first row                                                                    (2)
// Rows      where there are more than the budget, the one of the lowest s goes that is no sink and not one of the last
//           n_recent, which is called grace there; of equal ones the first                                              (3)
// Symbols   j = row, k = key after rotation
// Needs     keys; one note a row, s
// Cost      for each new row a product of its key with all rows held, one after the other
// Differs   h2o sums up what queries attend to. The kept rows of prompts are those of row by row, although all of a prompt's
//           rows are there when it attends. A row that nothing came after has s = 0: without n_recent it goes at once, so that
//           the first rows stay for ever (as there, before grace)

#include "policy/key_proxy.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

struct H2oProxyOptions {
  float decay = 0.98F;  // Eq. (1)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(decay, "decay", 0.0F, 1.0F, "each row that comes multiplies the sums so far with it");
  }
};

}  // namespace

std::unique_ptr<Scorer> make_h2o_proxy(OptionReader& reader) {
  return std::make_unique<KeyProxy>(
      ProxyRule{.decay = read_options<H2oProxyOptions>(reader).decay});
}

// pyramid@proxy, squeeze@proxy: the sums of h2o@proxy without decay, under allocators of their own (allocators/*_seed.cpp).
std::unique_ptr<Scorer> make_plain_proxy(OptionReader& /*reader*/) {
  return std::make_unique<KeyProxy>(ProxyRule{});
}

}  // namespace winnow::policy
