#include "eval/likelihood.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace winnow::eval {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const auto highest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - highest);
  }
  return highest + std::log(sum);
}

std::array<model::Token, 5> five_likeliest(std::span<const float> logits) {
  std::array<model::Token, 5> tokens{};
  size_t n = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (n == tokens.size() && !(logits[i] > logits[static_cast<size_t>(tokens[n - 1])])) {
      continue;
    }
    size_t at = n < tokens.size() ? n++ : n - 1;
    for (; at > 0 && logits[i] > logits[static_cast<size_t>(tokens[at - 1])]; --at) {
      tokens[at] = tokens[at - 1];
    }
    tokens[at] = static_cast<model::Token>(i);
  }
  return tokens;
}

}  // namespace

Reference::Reference(std::span<const float> logits) {
  WINNOW_CHECK(logits.size() >= likeliest_.size());
  const double log_z = log_sum_exp(logits);
  p_.reserve(logits.size());
  for (const float logit : logits) {
    const double log_p = static_cast<double>(logit) - log_z;
    p_.push_back(std::exp(log_p));
    negative_entropy_ += p_.back() > 0 ? p_.back() * log_p : 0;
  }
  likeliest_ = five_likeliest(logits);
}

PositionLoss Reference::compare(std::span<const float> logits, model::Token target) const {
  WINNOW_CHECK(logits.size() == p_.size());
  const double log_z = log_sum_exp(logits);
  double cross = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    cross += p_[i] > 0 ? p_[i] * (log_z - static_cast<double>(logits[i])) : 0;
  }
  const auto other = five_likeliest(logits);
  const auto n_common = std::ranges::count_if(
      likeliest_, [&](model::Token token) { return std::ranges::count(other, token) > 0; });
  return {.nll = log_z - static_cast<double>(logits[static_cast<size_t>(target)]),
          .kl = std::max(negative_entropy_ + cross, 0.0),
          .top1 = other[0] == likeliest_[0] ? 1.0 : 0.0,
          .top5 = static_cast<double>(n_common) / static_cast<double>(likeliest_.size())};
}

double negative_log_likelihood(std::span<const float> logits, model::Token target) {
  return log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(target)]);
}

}  // namespace winnow::eval
