// roles: the rows of a head are divided over what their tokens are there for.
//
// Source    "Adaptive Filtering of the KV Cache: Diagnosing and Correcting Structural-Role Bias in LLM Inference", 2026
// Rows      of a head's n that are left beside the protected ones:
//           t_r = w_r / (sum of w over the roles left) · n, floored; the rest one by one to the largest remainders,
//           of equals to the larger w_r, then to the role of higher precedence                                (1)
//           a role gets at most its rows; what it cannot take is divided again by (1) among the others       (2)
//           within a role, the rows with the best scores                                                     (3)
// Symbols   w_r = weight of role r, for roles the head has rows of
// Needs     the roles of the tokens; a token that is no document's counts as PROSE
// Cost      reads the scores twice
// Differs   rows that are protected anyway stand outside the division, where the study protects none. The study's code
//           leaves slots empty that no role with a weight can take; here roles without one get them, best scores first, so
//           that a budget is used up. Banned rows are never kept (the study's bans only set their scores to 0, so that
//           they came back where rows were left: legacy_ban)

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "kernels/select.h"
#include "policy/allocators.h"
#include "roles/role.h"

namespace winnow::policy {
namespace {

using roles::kRoles;
using roles::PerRole;
using roles::Role;

// Shares that differ by less are the same: weights such as 0.05 are not exact.
constexpr double kRounding = 1e-6;

// An option that weighs a role.
struct WeightOption {
  const char* name;
  Role role;
  std::string_view help;
};

constexpr WeightOption kWeightOptions[] = {
    {"key", Role::kKey, "weight of KEY, which with no-key VALUE has less; -1: that of roles"},
    {"value", Role::kValue, "weight of VALUE; -1: that of roles"},
    {"delim", Role::kDelim, "weight of DELIM; -1: that of roles"},
    {"header", Role::kHeader, "weight of HEADER; -1: that of roles"},
    {"prose", Role::kProse, "weight of PROSE; -1: that of roles"},
    {"ws", Role::kSpace, "weight of WS; -1: that of roles"}};

struct RolesOptions {
  std::string roles = "no-key";
  PerRole<float> weights = {-1, -1, -1, -1, -1, -1};
  std::string ban = "none";
  bool legacy_ban = false;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(roles, "roles",
      {"no-key", "value-only", "value-delim", "value-delim-prose-ws", "half", "equal", "fair",
       "mass", "none"},
      "weights of the roles (docs/policies.md)");
    for (const WeightOption& each : kWeightOptions) {
      v(weights[index(each.role)], each.name, -1.0F, 1000.0F, each.help);
    }
    v(ban, "ban", "none, or roles with + in between",
      "of which no row stays, whatever is left free");
    v(legacy_ban, "legacy_ban", "as the study banned: scores of 0, so that rows may stay");
  }
};

// The study's weights, in the order of kWeightOptions.
struct Preset {
  std::string_view name;
  float weights[kRoles];
};

constexpr Preset kPresets[] = {{"no-key", {0, 0.70F, 0.20F, 0, 0.05F, 0.05F}},
                               {"value-only", {0, 1, 0, 0, 0, 0}},
                               {"value-delim", {0, 0.8F, 0.2F, 0, 0, 0}},
                               {"value-delim-prose-ws", {0, 0.4F, 0.3F, 0, 0.2F, 0.1F}},
                               {"half", {0, 0.5F, 0.5F, 0, 0, 0}},
                               {"equal", {1, 1, 1, 1, 1, 1}},
                               {"none", {0, 0, 0, 0, 0, 0}}};

// Weights that are the same for every head, by `options`; those of fair and mass are not, and begin at 0.
PerRole<double> fixed_weights(const RolesOptions& options) {
  PerRole<double> weights{};
  for (const Preset& preset : kPresets) {
    for (size_t i = 0; preset.name == options.roles && i < kRoles; ++i) {
      weights[index(kWeightOptions[i].role)] = static_cast<double>(preset.weights[i]);
    }
  }
  return weights;
}

// Integers of `n` rows in proportion to weights, at most n_there of each role: Eqs. (1) and (2). Sums to n, or to all rows of roles
// that have a weight.
PerRole<int> quotas_of(int n, const PerRole<double>& weights, const PerRole<int>& n_there) {
  PerRole<int> quotas{};
  for (;;) {
    double sum = 0;
    PerRole<bool> is_open{};
    for (size_t r = 0; r < kRoles; ++r) {
      is_open[r] = weights[r] > 0 && quotas[r] < n_there[r];
      sum += is_open[r] ? weights[r] : 0;
    }
    const int n_left = n - std::accumulate(quotas.begin(), quotas.end(), 0);
    if (n_left == 0 || sum <= 0) {
      return quotas;
    }
    PerRole<int> shares{};
    PerRole<double> remainders{};
    int n_shared = 0;
    for (size_t r = 0; r < kRoles; ++r) {
      const double target = is_open[r] ? weights[r] / sum * n_left : 0;
      shares[r] = static_cast<int>(target + kRounding);
      remainders[r] = target - shares[r];
      n_shared += shares[r];
    }
    for (; n_shared < n_left; ++n_shared) {
      size_t best = kRoles;
      for (size_t r = kRoles; r-- > 0;) {
        const bool is_better =
            best == kRoles || remainders[r] > remainders[best] + kRounding ||
            (remainders[r] > remainders[best] - kRounding && weights[r] > weights[best]);
        best = is_open[r] && is_better ? r : best;
      }
      ++shares[best];
      remainders[best] = -1;
    }
    for (size_t r = 0; r < kRoles; ++r) {
      quotas[r] = std::min(quotas[r] + shares[r], n_there[r]);
    }
  }
}

class Roles final : public SecondStage {
 public:
  Roles(const RolesOptions& options, const PerRole<bool>& is_banned)
      : options_(options), is_banned_(is_banned), weights_(fixed_weights(options)) {
    const PerRole<float>& given = options.weights;
    for (size_t r = 0; r < kRoles; ++r) {
      if (given[r] >= 0) {
        weights_[r] = static_cast<double>(given[r]);
      }
    }
    const float key = given[index(Role::kKey)];
    if (options.roles == "no-key" && key > 0 && given[index(Role::kValue)] < 0) {
      weights_[index(Role::kValue)] = std::max(0.70 - static_cast<double>(key), 0.0);
    }
  }

  Needs needs() const override { return {.roles = true}; }
  bool may_drop_any() const override {
    return !options_.legacy_ban && std::ranges::count(is_banned_, true) > 0;
  }

  // Rows that stay get +infinity, the others -infinity.
  int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
              std::span<float> rescored) const override {
    const Scratch::Frame frame(scratch);
    const ScoredHead& head = layer[static_cast<size_t>(kv_head)];
    const auto [n_first, n_last] = head.keep_anyway;
    const auto first = static_cast<size_t>(n_first);
    const size_t n = head.scores.size() - first - static_cast<size_t>(n_last);
    const std::span<float> scores = scratch.take<float>(n);
    std::ranges::copy(head.scores.subspan(first, n), scores.begin());
    const std::span<uint8_t> role_of = scratch.take<uint8_t>(n);
    PerRole<int> n_there{};
    int n_banned = 0;
    for (size_t i = 0; i < n; ++i) {
      const size_t r = index(role_at(head, first + i));
      const bool is_banned = is_banned_[r] && !options_.legacy_ban;
      scores[i] = is_banned_[r] && options_.legacy_ban ? 0.0F : scores[i];
      role_of[i] = static_cast<uint8_t>(is_banned ? size_t{kRoles} : r);
      n_there[r] += is_banned ? 0 : 1;
      n_banned += is_banned ? 1 : 0;
    }
    std::ranges::fill(rescored, -std::numeric_limits<float>::infinity());
    const int n_wanted = std::min(n_keep - n_first - n_last, static_cast<int>(n) - n_banned);
    const PerRole<int> quotas = quotas_of(n_wanted, weights_for(scores, role_of, n_there), n_there);
    for (size_t r = 0; r < kRoles; ++r) {
      take_best(
          scores, role_of, [r](uint8_t role) { return role == r; }, quotas[r], scratch,
          rescored.subspan(first, n));
    }
    // What no role with a weight could take.
    const int n_left = n_wanted - std::accumulate(quotas.begin(), quotas.end(), 0);
    take_best(
        scores, role_of,
        [&](uint8_t role) { return role < kRoles && quotas[role] < n_there[role]; }, n_left,
        scratch, rescored.subspan(first, n));
    return n_wanted + n_first + n_last;
  }

 private:
  static Role role_at(const ScoredHead& head, size_t i) {
    const auto position = static_cast<size_t>(head.rows().positions[head.slot(i)]);
    const std::span<const Role> roles = head.layer->roles;
    return position < roles.size() ? roles[position] : Role::kProse;
  }

  // Of a head: fair weighs roles by their rows, mass by the scores of these above 0.
  PerRole<double> weights_for(std::span<const float> scores, std::span<const uint8_t> role_of,
                              const PerRole<int>& n_there) const {
    PerRole<double> weights = weights_;
    if (options_.roles == "fair") {
      std::ranges::copy(n_there, weights.begin());
    } else if (options_.roles == "mass") {
      for (size_t i = 0; i < scores.size(); ++i) {
        if (role_of[i] < kRoles && std::isfinite(scores[i]) && scores[i] > 0) {
          weights[role_of[i]] += static_cast<double>(scores[i]);
        }
      }
    }
    return weights;
  }

  // Marks the n best of the rows that are meant and not marked yet.
  template <typename IsMeant>
  static void take_best(std::span<const float> scores, std::span<const uint8_t> role_of,
                        IsMeant is_meant, int n, Scratch& scratch, std::span<float> marks) {
    if (n <= 0) {
      return;
    }
    const Scratch::Frame frame(scratch);
    const std::span<float> some = scratch.take<float>(scores.size());
    const std::span<int> places = scratch.take<int>(scores.size());
    size_t n_some = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (is_meant(role_of[i]) && marks[i] < 0) {
        some[n_some] = scores[i];
        places[n_some++] = static_cast<int>(i);
      }
    }
    const std::span<int> best = scratch.take<int>(static_cast<size_t>(n) + kernels::kSelectSlack);
    kernels::select_highest(some.first(n_some), n, 0, best, scratch);
    for (const int i : best.first(static_cast<size_t>(n))) {
      marks[static_cast<size_t>(places[static_cast<size_t>(i)])] =
          std::numeric_limits<float>::infinity();
    }
  }

  RolesOptions options_;
  PerRole<bool> is_banned_;
  PerRole<double> weights_;
};

// "key+ws" to the roles that it names.
PerRole<bool> parse_ban(std::string_view text, OptionReader& reader) {
  PerRole<bool> is_banned{};
  const std::string_view all = text;
  for (bool goes_on = all != "none"; goes_on;) {
    const std::string_view name = text.substr(0, text.find('+'));
    const auto* const entry =
        std::ranges::find_if(roles::kRoleNames.entries, [&](const auto& each) {
          return std::ranges::equal(std::string_view(each.name), name,
                                    [](char a, char b) { return a - 'A' == b - 'a'; });
        });
    if (entry == std::ranges::end(roles::kRoleNames.entries)) {
      reader.add_problem("ban=" + std::string(all) +
                         ": not a role (allowed: none, or key, value, delim, header, prose and ws, "
                         "with + in between)");
      break;
    }
    is_banned[index(entry->value)] = true;
    goes_on = name.size() < text.size();
    text.remove_prefix(std::min(name.size() + 1, text.size()));
  }
  return is_banned;
}

}  // namespace

std::unique_ptr<SecondStage> make_roles(OptionReader& reader) {
  const auto options = read_options<RolesOptions>(reader);
  for (const WeightOption& each : kWeightOptions) {
    const float weight = options.weights[index(each.role)];
    if (weight < 0 && weight != -1.0F) {
      reader.add_problem(std::string(each.name) + "=" + number_text(weight) +
                         ": no weight (allowed: 0 to 1000, or -1 for that of roles)");
    }
  }
  const bool has_own_weights = options.roles == "fair" || options.roles == "mass";
  for (const WeightOption& each : kWeightOptions) {
    if (has_own_weights && reader.is_given(each.name)) {
      reader.add_problem(std::string(each.name) + " has no meaning with roles=" + options.roles +
                         ", whose weights are those of each head's rows");
    }
  }
  return std::make_unique<Roles>(options, parse_ban(options.ban, reader));
}

}  // namespace winnow::policy
