// qfilters: keep the rows whose keys reach farthest along the direction that the head's queries point in.
//
// Source    Godey, Devoto, Zhao, Scardapane, Minervini, de la Clergerie, Sagot, 2025, arXiv 2503.02812
// Score     s(h, i) = sign · k(h, i) · f(h)                                         (1)
//           s(h, i) = sign · k(h, i) · R(p(i)) f(h)   for filters from before rotation  (2)
//           s(h, i) = -||k(h, i)||^2                for guarded heads               (3)
// Symbols   h = KV head, i = slot, k = key after rotation, f = filter of the head (docs/qfilters.md), p = position,
//           R = rotation
// Needs     a file of filters, made for the model; what (1) to (3) are without their signs, written at append; no keys, values,
//           queries or attention weights
// Cost      4 bytes a row. With contiguous positions, whose keys move, reads each key
// Differs   a group of query heads has its filters' mean at length 1, as the file is made by default; the authors leave the
//           mean as it is. Guarded heads, whose filters cancel each other, fall back to knorm

#include <algorithm>
#include <cstddef>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "kernels/score_directions.h"
#include "policy/filters.h"
#include "policy/methods.h"

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
      : filters_(std::move(filters)), sign_(options.sign == "1" ? 1.0F : -1.0F) {
    if (filters_ != nullptr) {
      directions_ = directions_of(*filters_, options.guard == "weak");
    }
  }

  Needs needs() const override { return {.key_projections = true}; }
  const Filters* filters() const override { return filters_.get(); }
  const kernels::ScoreDirections* score_directions() const override { return &directions_; }

  // rows.scores, or rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const Scratch::Frame frame(scratch);
    std::span<const float> projections(rows.scores, scores.size());
    if (!rows.scores_are_projections) {
      const std::span<float> of_keys = scratch.take<float>(scores.size());
      kernels::project_keys(rows, directions_, layer.layer, kv_head, layer.rotation, of_keys);
      projections = of_keys;
    }
    const float sign = directions_.of(layer.layer, kv_head).empty() ? -1.0F : sign_;
    std::ranges::transform(projections, scores.begin(),
                           [sign](float each) { return sign * each; });  // Eq. (1) to (3)
  }

 private:
  static kernels::ScoreDirections directions_of(const Filters& filters, bool guards_weak) {
    kernels::ScoreDirections directions{.n_kv_heads = filters.shape.n_kv_heads,
                                        .head_dim = filters.shape.head_dim,
                                        .is_before_rotation = filters.frame == FilterFrame::kPre,
                                        .elements = filters.directions};
    for (size_t head = 0; head < filters.is_guarded.size(); ++head) {
      const bool is_weak =
          guards_weak && !filters.kappa_low.empty() && filters.kappa_low[head] <= 0;
      const bool is_guarded = filters.is_guarded[head] || is_weak;
      directions.has_direction.push_back(is_guarded ? 0 : 1);
    }
    return directions;
  }

  std::shared_ptr<const Filters> filters_;
  kernels::ScoreDirections directions_;
  float sign_;
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
