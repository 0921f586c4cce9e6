// qfilters: keep the rows whose keys reach farthest along the direction that the head's queries point in.
//
// Source    Godey, Devoto, Zhao, Scardapane, Minervini, de la Clergerie, Sagot, 2025, arXiv 2503.02812
// Score     s(h, i) = sign · k(h, i) · f(h)                                         (1)
//           s(h, i) = sign · k(h, i) · R(p(i)) f(h)   for filters from before rotation  (2)
//           s(h, i) = -||k(h, i)||^2                for guarded heads               (3)
// Symbols   h = KV head, i = slot, k = key after rotation, f = filter of the head (docs/qfilters.md), p = position,
//           R = rotation
// Needs     a file of filters, made for the model; keys; no values, queries or attention weights
// Cost      reads each visible key; scratch of 4 bytes a row
// Differs   a group of query heads has its filters' mean at length 1, as the file is made by default; the authors leave the
//           mean as it is. Guarded heads, whose filters cancel each other, fall back to knorm

#include <cstddef>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "kernels/row_kernels.h"
#include "policy/filters.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct QFiltersFile {
  std::string filters;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(filters, "filters", "FILE", "what winnow calibrate made of the model; must be given");
  }
};

struct QFiltersOptions {
  std::string filters_digest;
  std::string sign = "1";
  std::string guard = "cancelled";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(filters_digest, "filters_digest", "16 hexadecimal digits",
      "of the file's content, filled in where it is not given; another content is refused");
    v(sign, "sign", {"1", "-1"}, "-1 keeps the opposite rows, an ablation");
    v(guard, "guard", {"cancelled", "weak"},
      "heads that fall back to knorm: those whose filters cancel; or also those whose kappa may be "
      "0");
  }
};

class QFilters final : public Scorer {
 public:
  // `filters` is null where options are only described.
  QFilters(std::shared_ptr<const Filters> filters, const QFiltersOptions& options)
      : filters_(std::move(filters)),
        sign_(options.sign == "1" ? 1.0F : -1.0F),
        guards_weak_(options.guard == "weak") {}

  Needs needs() const override { return {.keys = true}; }
  const Filters* filters() const override { return filters_.get(); }

  // rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> worth = scratch.take<float>(slots.size());
    float sign = sign_;
    if (is_guarded(layer.layer, kv_head)) {
      kernels::squared_norms(kernels::keys_of(rows), slots, worth, scratch);  // Eq. (3)
      sign = -1;
    } else if (filters_->frame == FilterFrame::kPre) {
      project_before_rotation(layer, rows, filters_->direction(layer.layer, kv_head), slots,
                              scratch, worth);
    } else {
      kernels::row_dots(kernels::keys_of(rows), slots, filters_->direction(layer.layer, kv_head),
                        worth, scratch);  // Eq. (1)
    }
    score_visible(slots, worth, sign, scores);
  }

 private:
  bool is_guarded(int layer, int kv_head) const {
    const size_t head =
        static_cast<size_t>(layer) * static_cast<size_t>(filters_->shape.n_kv_heads) +
        static_cast<size_t>(kv_head);
    return filters_->is_guarded[head] || (guards_weak_ && filters_->kappa_low[head] <= 0);
  }

  // Eq. (2): a key that was turned back lies along the filter as far as the key does along the filter turned forwards.
  static void project_before_rotation(const LayerView& layer, const cache::HeadRows& rows,
                                      std::span<const float> direction, std::span<const int> slots,
                                      Scratch& scratch, std::span<float> worth) {
    const std::span<float> turns = scratch.take<float>(layer.rotation->n_rot());
    const std::span<float> turned = scratch.take<float>(direction.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      const int slot = slots[i];
      kernels::turns_at(*layer.rotation,
                        rows.rotations != nullptr ? rows.rotations[slot] : rows.positions[slot],
                        turns);
      std::ranges::copy(direction, turned.begin());
      kernels::turn(*layer.rotation, turns, turned);
      kernels::row_dots(kernels::keys_of(rows), slots.subspan(i, 1), turned, worth.subspan(i, 1),
                        scratch);
    }
  }

  std::shared_ptr<const Filters> filters_;
  float sign_;
  bool guards_weak_;
};

}  // namespace

std::unique_ptr<Scorer> make_qfilters(OptionReader& reader) {
  const std::string path = read_options<QFiltersFile>(reader).filters;
  std::string content;
  std::shared_ptr<const Filters> filters;
  if (path.empty()) {
    reader.add_problem(
        "qfilters needs the filters of the model, as in filters=FILE; winnow calibrate -m MODEL -f "
        "TEXT -o FILE makes them");
  } else {
    try {
      content = read_text_file(path);
      filters =
          std::make_shared<const Filters>(parse_filters(std::as_bytes(std::span(content)), path));
    } catch (const Error& error) {
      const bool is_named = std::string_view(error.what()).find(path) != std::string_view::npos;
      reader.add_problem((is_named ? "filters=" : "filters=" + path + ": ") +
                         std::string(error.what()));
    }
  }
  const std::string digest = content_hash(std::as_bytes(std::span(content)));
  if (filters != nullptr) {
    reader.give_default("filters_digest", digest);
  }
  const auto options = read_options<QFiltersOptions>(reader);
  if (filters != nullptr && options.filters_digest != digest) {
    reader.add_problem("filters=" + path + " has another content: its digest is " + digest +
                       ", not " + options.filters_digest);
  }
  if (filters != nullptr && options.guard == "weak" && filters->kappa_low.empty()) {
    reader.add_problem("guard=weak needs the kappa of each head, which " + path + " does not have");
  }
  return std::make_unique<QFilters>(std::move(filters), options);
}

}  // namespace winnow::policy
