// How the next-token distributions of an arm differ from those of the full cache.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "model/vocabulary.h"

namespace winnow::eval {

struct PositionLoss {
  double nll = 0;   // -log q(target), in nats
  double kl = 0;    // KL(p ‖ q), in nats: p is the reference
  double top1 = 0;  // 1 where both have the same likeliest token, else 0
  double top5 =
      0;  // the share of the reference's five likeliest tokens that are among the other's five
};

// The distribution that others are compared with. Among equal logits the lower token is the likelier.
class Reference {
 public:
  // logits [n_vocab], finite, n_vocab >= 5
  explicit Reference(std::span<const float> logits);

  // Compares the distribution of `logits` [n_vocab], of which some may be -inf.
  PositionLoss compare(std::span<const float> logits, model::Token target) const;

 private:
  std::vector<double> p_;  // [n_vocab]
  double negative_entropy_ = 0;
  std::array<model::Token, 5> likeliest_{};
};

// -log of the softmax of logits [n_vocab] at `target`, in nats.
double negative_log_likelihood(std::span<const float> logits, model::Token target);

}  // namespace winnow::eval
