#include "policy/mergers.h"

#include <cmath>
#include <iterator>

#include "kernels/row_kernels.h"

namespace winnow::policy {

const MergerPart* find_merger(std::string_view name) {
  const auto* const part = std::ranges::find(kMergers, name, &MergerPart::name);
  return part == std::end(kMergers) ? nullptr : part;
}

std::vector<OptionDescription> describe_options(const MergerPart& part) {
  OptionReader reader;
  part.make(reader);
  return reader.descriptions();
}

std::vector<std::string> describe_needs(const MergerPart& part) {
  OptionReader reader;
  return describe(part.make(reader)->needs());
}

NewRows apply_folds(const cache::HeadRows& rows, std::span<const int> kept,
                    std::span<const Fold> folds, Scratch& scratch) {
  const auto dim = static_cast<size_t>(rows.head_dim);
  const std::span<int> changed = scratch.take<int>(std::min(kept.size(), folds.size()));
  const std::span<float> values = scratch.take<float>(changed.size() * dim);
  if (folds.empty()) {
    return {};
  }
  const Scratch::Frame frame(scratch);
  constexpr int kNone = -1;
  const std::span<int> buffer_of = scratch.take_filled(static_cast<size_t>(rows.n), kNone);
  const std::span<float> buffers = scratch.take<float>((folds.size() + 1) * dim);
  const auto read = [&](int slot, std::span<float> value) {
    constexpr float kOnce = 1;
    kernels::weighted_sum(kernels::values_of(rows), {&slot, 1}, {&kOnce, 1}, value, scratch);
    return std::ranges::all_of(value, [](float each) { return std::isfinite(each); });
  };
  const auto buffer = [&](int index) {
    return buffers.subspan(static_cast<size_t>(index) * dim, dim);
  };
  int n_buffers = 0;
  const auto spare = static_cast<int>(folds.size());
  for (const Fold& fold : folds) {
    const int from = buffer_of[static_cast<size_t>(fold.from)];
    if (from == kNone && !read(fold.from, buffer(spare))) {
      continue;
    }
    int& to = buffer_of[static_cast<size_t>(fold.to)];
    if (to == kNone) {
      if (!read(fold.to, buffer(n_buffers))) {
        continue;
      }
      to = n_buffers++;
    }
    const std::span<const float> given = buffer(from == kNone ? spare : from);
    std::ranges::transform(buffer(to), given, buffer(to).begin(), [&](float own, float other) {
      return (1 - fold.weight) * own + fold.weight * other;
    });
  }
  size_t n_changed = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (const int index = buffer_of[static_cast<size_t>(kept[i])]; index != kNone) {
      std::ranges::copy(buffer(index),
                        values.begin() + static_cast<std::ptrdiff_t>(n_changed * dim));
      changed[n_changed++] = static_cast<int>(i);
    }
  }
  return {.rows = changed.first(n_changed), .values = values.first(n_changed * dim)};
}

}  // namespace winnow::policy
