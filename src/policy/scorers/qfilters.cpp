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
#include "kernels/score_directions.h"
#include "policy/filter_option.h"
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
  float min_correlation = 0.1F;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(filters_digest, "filters_digest", "16 hexadecimal digits",
      "of the file's content, filled in where it is not given; another content is refused");
    v(sign, "sign", {"1", "-1"}, "-1 keeps the opposite rows, an ablation");
    v(guard, "guard", {"cancelled", "weak"},
      "heads that fall back to knorm: those whose filters cancel; or also those whose kappa may be "
      "0, or whose projections say little about attention");
    v(min_correlation, "min_correlation", -1.0F, 1.0F,
      "guard=weak: less rank correlation with attention, as calibrated, is little");
  }
};

class QFilters final : public Scorer {
 public:
  // `filters` is null where options are only described.
  QFilters(std::shared_ptr<const Filters> filters, const QFiltersOptions& options)
      : filters_(std::move(filters)), sign_(options.sign == "1" ? 1.0F : -1.0F) {
    if (filters_ != nullptr) {
      directions_ = policy::score_directions(*filters_, guarded(*filters_, options));
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
    if (rows.score_kind != cache::StaticScore::kProjection) {
      const std::span<float> of_keys = scratch.take<float>(scores.size());
      kernels::project_keys(rows, directions_, layer.layer, kv_head, layer.rotation, scratch,
                            of_keys);
      projections = of_keys;
    }
    const float sign = directions_.of(layer.layer, kv_head).empty() ? -1.0F : sign_;
    std::ranges::transform(projections, scores.begin(),
                           [sign](float each) { return sign * each; });  // Eq. (1) to (3)
  }

 private:
  // Heads that fall back.
  static std::vector<bool> guarded(const Filters& filters, const QFiltersOptions& options) {
    std::vector<bool> is_guarded = filters.is_guarded;
    for (size_t head = 0; options.guard == "weak" && head < is_guarded.size(); ++head) {
      const bool may_be_negative = !filters.kappa_low.empty() && filters.kappa_low[head] <= 0;
      const bool says_little =
          !filters.correlation.empty() && filters.correlation[head] < options.min_correlation;
      is_guarded[head] = is_guarded[head] || may_be_negative || says_little;
    }
    return is_guarded;
  }

  std::shared_ptr<const Filters> filters_;
  kernels::ScoreDirections directions_;
  float sign_;
};

}  // namespace

std::unique_ptr<Scorer> make_qfilters(OptionReader& reader) {
  const std::string path = read_options<QFiltersFile>(reader).filters;
  FilterFile file;
  if (path.empty()) {
    reader.add_problem(
        "qfilters needs the filters of the model, as in filters=FILE; winnow calibrate -m MODEL -f "
        "TEXT -o FILE makes them");
  } else {
    file = read_filter_file(reader, "filters", path);
  }
  const auto options = read_options<QFiltersOptions>(reader);
  check_digest(reader, "filters", path, file, options.filters_digest);
  if (file.filters != nullptr && options.guard == "weak" && file.filters->kappa_low.empty() &&
      file.filters->correlation.empty()) {
    reader.add_problem(
        "guard=weak needs the kappa of each head, or its correlation with attention, and " + path +
        " has neither");
  }
  return std::make_unique<QFilters>(std::move(file.filters), options);
}

}  // namespace winnow::policy
