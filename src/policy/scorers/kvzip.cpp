// kvzip: keep the rows that the model needs to repeat the document.
//
// Source    Kim et al., 2025, arXiv 2505.23416
// Score     s(j) = max over the query heads h of the KV head and over all t of A_h(t, j)                          (1)
//           A_h(t, ·) = softmax over the first n_sink rows, the rows of j's part of the document, and the rows of the
//           replay up to t                                                                                     (2)
//           Rows that were never replayed come before all others.                                              (3)
//           weigh=output: A_h(t, j) · ||W_h v(j)||_2 / ||x(t)||_2 in the place of A_h(t, j) in (1): kvpress' KVzip+    (4)
// Symbols   j = row; t = tokens of the replay: the request to repeat a part of the document, and the part itself; W_h = the
//           columns of the output projection that multiply h's output; v(j) = the row's value; x(t) = what t's query is a
//           projection of
// Needs     the document replayed in parts of `chunk` tokens, once it is read and before any row goes (engine/replay.h)
// Cost      the replay, which takes longer than reading; then 4 bytes a row at each eviction
// Differs   what stands before the document (system message, template) is never replayed, and stays by (3); kvpress gives it
//           0 beyond the sinks, so that it goes first. In (2) the authors have all of that in the place of n_sink rows.
//           Rows go for good, and the published implementations but the authors' mask them. One pool over all heads
//           is the authors' division of the budget

#include <algorithm>
#include <string>

#include "base/error.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

struct KvzipOptions {
  int chunk = 2048;
  std::string weigh = "attention";  // Eq. (4)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(chunk, "replay_chunk", 16, 1 << 20, "tokens of the document that are repeated at a time");
    v(weigh, "weigh", {"attention", "output"},
      "output: attention counts times what the row's value comes to in the layer's output");
  }
};

class Kvzip final : public Scorer {
 public:
  explicit Kvzip(const KvzipOptions& options) : options_(options) {}

  Needs needs() const override {
    return {.replay = {.chunk = options_.chunk, .weighs_outputs = options_.weigh == "output"}};
  }
  bool may_be_negative() const override { return false; }

  // rows.scores [n_cached] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& /*scratch*/,
             std::span<float> scores) const override {
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rows.scores != nullptr && std::ssize(scores) == rows.n);
    std::copy_n(rows.scores, scores.size(), scores.begin());  // Eq. (1) to (3)
  }

 private:
  KvzipOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_kvzip(OptionReader& reader) {
  return std::make_unique<Kvzip>(read_options<KvzipOptions>(reader));
}

}  // namespace winnow::policy
