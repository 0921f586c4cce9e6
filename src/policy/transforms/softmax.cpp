// softmax: the share of its head's worth that a row has, in the place of its score.
//
// Score     s'(j) = exp(s(j) / (temperature · σ)) / Σ_i exp(s(i) / (temperature · σ))                (1)
// Symbols   j, i = rows; σ = standard deviation of the head's finite scores, or 1 where all are equal
// Cost      an exponential for each row
// Differs   without σ, heads whose scores have a wide range, such as knorm's, would put all their weight on a row or two.
//           Infinite scores stay as they are. Scores more than about 87 temperature · σ below the best all become 0

#include <algorithm>
#include <cmath>

#include "kernels/row_kernels.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

struct SoftmaxOptions {
  float temperature = 1.0F;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(temperature, "temperature", 0.001F, 1000.0F,
      "in standard deviations of the head's scores; a low one tells the best rows apart");
  }
};

// The standard deviation of the finite ones; 1 where there is none, or they are equal.
double deviation(std::span<const float> scores) {
  double sum = 0;
  double n = 0;
  for (const float score : scores) {
    if (std::isfinite(score)) {
      sum += static_cast<double>(score);
      n += 1;
    }
  }
  double squares = 0;
  for (const float score : scores) {
    if (std::isfinite(score)) {
      const double distance = static_cast<double>(score) - sum / n;
      squares += distance * distance;
    }
  }
  return squares > 0 ? std::sqrt(squares / n) : 1;
}

class Softmax final : public Normalizer {
 public:
  explicit Softmax(const SoftmaxOptions& options) : options_(options) {}

  void normalize(std::span<float> scores, Scratch& scratch) const override {
    const Scratch::Frame frame(scratch);
    const double unit = deviation(scores) * static_cast<double>(options_.temperature);
    const std::span<float> finite = scratch.take<float>(scores.size());
    size_t n = 0;
    for (const float score : scores) {
      if (std::isfinite(score)) {
        finite[n++] = static_cast<float>(static_cast<double>(score) / unit);
      }
    }
    kernels::softmax(finite.first(n));  // Eq. (1)
    const float* next = finite.data();
    for (float& score : scores) {
      score = std::isfinite(score) ? *next++ : score;
    }
  }

 private:
  SoftmaxOptions options_;
};

}  // namespace

std::unique_ptr<Normalizer> make_softmax(OptionReader& reader) {
  return std::make_unique<Softmax>(read_options<SoftmaxOptions>(reader));
}

}  // namespace winnow::policy
