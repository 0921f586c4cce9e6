// chunkkv@proxy: chunks of rows by attention in which keys stand in for queries, one going as rows come.
//
// Source    VeloxQuant-MLX's ChunkKV cache, which sees no queries; an adaptation of Liu et al., 2025, arXiv 2502.00299
// Score     s(j) as h2o@proxy has it, without decay; or -||k(j)||                                                     (1)
// Rows      where there are more than the budget, of the chunk_rows neighbours of the lowest mean s, of equal ones the first, the
//           row of the lowest s goes, and with drop_whole=true all; chunks begin with the first row that may go, and the last
//           may be shorter                                                                                              (2)
// Symbols   j = row, k = key after rotation
// Needs     keys; for score=attn_mass one note a row
// Cost      for each new row a product of its key with all rows held, one after the other
// Differs   the transform chunkkv has chunks at fixed positions, and fills budgets to the row; here up to chunk_rows - 1 rows of the
//           budget are empty after a cut of whole chunks, which is how the source has it: preset=seed. Layers do not reuse each
//           other's choices

#include "policy/key_proxy.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

struct ChunkkvProxyOptions {
  int chunk_rows = 8;               // Eq. (2)
  bool drop_whole = false;          // Eq. (2)
  std::string score = "attn_mass";  // Eq. (1)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(chunk_rows, "chunk_rows", 1, 1 << 16, "neighbouring rows that are compared together");
    v(drop_whole, "drop_whole",
      "all of them go, so that fewer rows than the budget stay; else the one that is worth least");
    v(score, "score", {"attn_mass", "key_norm"},
      "what rows are worth: the attention that later keys pay to them, or short keys");
  }
};

}  // namespace

std::unique_ptr<Scorer> make_chunkkv_proxy(OptionReader& reader) {
  const auto options = read_options<ChunkkvProxyOptions>(reader);
  return std::make_unique<KeyProxy>(ProxyRule{
      .worth = options.score == "key_norm" ? ProxyRule::Worth::kLowNorms : ProxyRule::Worth::kSum,
      .chunk = options.chunk_rows,
      .drops_whole_chunks = options.drop_whole});
}

}  // namespace winnow::policy
