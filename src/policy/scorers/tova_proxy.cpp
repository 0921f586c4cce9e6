// tova@proxy: tova where keys stand in for queries, and rows go one by one as others come.
//
// Source    VeloxQuant-MLX's TOVA cache, which sees no queries; an adaptation of Oren et al., 2024, arXiv 2401.06104
// Score     s(j) = k_new · k(j), of the newest key and all rows held, itself among them: in the order of its softmax   (1)
// Rows      for each row that comes beyond the budget, the one of the lowest s goes that is no sink; of equal ones the first
// Symbols   j = row, k = key after rotation
// Needs     keys
// Cost      for each row beyond the budget a product of its key with all rows held, one after the other
// Differs   tova asks with the last query, once at each cut

#include "policy/key_proxy.h"
#include "policy/methods.h"

namespace winnow::policy {

std::unique_ptr<Scorer> make_tova_proxy(OptionReader& /*reader*/) {
  return std::make_unique<KeyProxy>(ProxyRule{.worth = ProxyRule::Worth::kLast});
}

}  // namespace winnow::policy
