#include "eval/role_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace winnow::eval {
namespace {

using roles::PerRole;
using roles::Role;

constexpr double kMuch = 10;  // times the mean

double sum_of(std::span<const double> mass) {
  return std::accumulate(mass.begin(), mass.end(), 0.0);
}

// Signal over noise: what attention pays to values, and to what they are wrapped in. 0 where nothing is wrapped.
double ratio(double value, double other) {
  return other > 0 ? value / other : 0;
}

}  // namespace

RoleDiagnosis::RoleDiagnosis(DocumentRoles document, std::vector<std::vector<HeadMass>> mass)
    : document_(std::move(document)), mass_(std::move(mass)) {
  for (const Role role : document_.roles) {
    ++n_tokens_[index(role)];
  }
  for (const std::vector<HeadMass>& layer : mass_) {
    n_heads_ += static_cast<int>(layer.size());
    for (const HeadMass& head : layer) {
      WINNOW_CHECK(static_cast<size_t>(document_.begin) + document_.roles.size() <= head.size());
    }
  }
  WINNOW_CHECK(n_heads_ > 0 && !document_.roles.empty());
}

// Calls body(layer, kv_head, mass of the document's tokens, mass of all).
template <typename Body>
void RoleDiagnosis::for_heads(const Body& body) const {
  for (size_t layer = 0; layer < mass_.size(); ++layer) {
    for (size_t head = 0; head < mass_[layer].size(); ++head) {
      const std::span<const double> all = mass_[layer][head];
      body(layer, head, all.subspan(static_cast<size_t>(document_.begin), document_.roles.size()),
           all);
    }
  }
}

void RoleDiagnosis::describe_mass(Record& record) const {
  PerRole<double> mass{}, above{}, bottom{}, top{};
  double first = 0;
  double error = 0;
  HeadValues& key_value = record.heads["key_value"];
  key_value.assign(mass_.size(), {});
  for_heads([&](size_t layer, size_t /*head*/, std::span<const double> document,
                std::span<const double> all) {
    error = std::max(error, std::abs(sum_of(all) / static_cast<double>(all.size()) - 1));
    first += all.front() / n_heads_;
    std::vector<double> sorted(document.begin(), document.end());
    std::ranges::sort(sorted);
    const double low = sorted[sorted.size() / 4];
    const double high = sorted[sorted.size() - 1 - sorted.size() / 4];
    PerRole<double> of_head{};
    for (size_t i = 0; i < document.size(); ++i) {
      const size_t role = index(document_.roles[i]);
      of_head[role] += document[i];
      above[role] += document[i] > kMuch ? 1.0 / n_heads_ : 0;
      bottom[role] += document[i] < low ? 1.0 / n_heads_ : 0;
      top[role] += document[i] > high ? 1.0 / n_heads_ : 0;
    }
    const auto mean_of = [&](Role role) {
      return ratio(of_head[index(role)], n_tokens_[index(role)]);
    };
    key_value[layer].push_back(ratio(mean_of(Role::kKey), mean_of(Role::kValue)));
    for (size_t role = 0; role < mass.size(); ++role) {
      mass[role] += of_head[role] / n_heads_;
    }
  });
  const auto first_role = document_.begin == 0 ? index(document_.roles[0]) : mass.size();
  for (const auto& [role, name] : roles::kRoleNames.entries) {
    const size_t r = index(role);
    const auto n = static_cast<double>(n_tokens_[r]);
    if (n_tokens_[r] == 0) {
      continue;
    }
    record.metrics[std::string("mass.") + name] = mass[r] / n;
    const double n_first = r == first_role ? 1 : 0;
    record.metrics[std::string("rest.") + name] = ratio(mass[r] - n_first * first, n - n_first);
    record.metrics[std::string("above10.") + name] = above[r];
    record.metrics[std::string("bottom.") + name] = bottom[r] / n;
    record.metrics[std::string("top.") + name] = top[r] / n;
  }
  record.metrics["first"] = first;
  record.metrics["mass_error"] = error;
  const size_t key = index(Role::kKey);
  const size_t value = index(Role::kValue);
  record.metrics["key_value"] =
      ratio(ratio(mass[key], n_tokens_[key]), ratio(mass[value], n_tokens_[value]));
  record.metrics["snr"] = ratio(mass[value], mass[key] + mass[index(Role::kDelim)]);
}

void RoleDiagnosis::describe_kept(const std::vector<std::vector<std::vector<int>>>& positions,
                                  Record& record) const {
  PerRole<double> n_kept{}, mass{};
  const auto end = document_.begin + static_cast<int>(document_.roles.size());
  for_heads([&](size_t layer, size_t head, std::span<const double> document,
                std::span<const double> /*all*/) {
    for (const int position : positions[layer][head]) {
      if (position >= document_.begin && position < end) {
        const auto i = static_cast<size_t>(position - document_.begin);
        n_kept[index(document_.roles[i])] += 1.0 / n_heads_;
        mass[index(document_.roles[i])] += document[i];
      }
    }
  });
  PerRole<double> shares{};
  for (const auto& [role, name] : roles::kRoleNames.entries) {
    const size_t r = index(role);
    if (n_tokens_[r] > 0) {
      shares[r] = n_kept[r] / n_tokens_[r];
      record.metrics[std::string("kept.") + name] = shares[r];
    }
  }
  record.metrics["kept.key_value"] = ratio(shares[index(Role::kKey)], shares[index(Role::kValue)]);
  record.metrics["snr"] =
      ratio(mass[index(Role::kValue)], mass[index(Role::kKey)] + mass[index(Role::kDelim)]);
}

}  // namespace winnow::eval
