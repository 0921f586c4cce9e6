// quest: a generated token reads the pages of rows whose keys may reach farthest along its queries.
//
// Source    Tang et al., ICML 2024, arXiv 2406.10774
// Ranks     u(P) = Σ_h Σ_c max(q(h, c) · low(P, c), q(h, c) · high(P, c))                          (1)
// Symbols   P = page of page_rows rows that follow each other; h = query heads of the KV head; c = channel; low, high =
//           bounds of the keys of the page. The `pages` - 1 pages with the greatest u and the newest are read
// Needs     two bounds for each page: 2 / page_rows of the bytes of keys, beside the rows
// Cost      reads the bounds, and the rows of the pages that are read, for each token
// Differs   the authors choose for each query head, which reads the pages of all heads of a group one after the other; here a
//           group chooses together, and reads each page once. They keep all rows; here any method may have taken some before
//           (`streaming+quest:budget=1000000` takes none)

#include "policy/readers.h"

namespace winnow::policy {
namespace {

struct QuestReaderOptions {
  kernels::PageRule rule = {.n_pages = 64};

  template <typename Visitor>
  void visit(Visitor& v) {
    v(rule.n_pages, "pages", 1, 1 << 20,
      "how many pages a head reads for a generated token, the newest among them");
    v(rule.page_rows, "page_rows", 1, 4096, "rows of such a page");
    v(rule.n_whole_layers, "whole_layers", 0, 4096, "the first layers read all their rows");
  }
};

}  // namespace

kernels::PageRule make_quest_reader(OptionReader& reader) {
  return read_options<QuestReaderOptions>(reader).rule;
}

}  // namespace winnow::policy
