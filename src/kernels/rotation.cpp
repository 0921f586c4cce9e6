#include "kernels/rotation.h"

#include <cmath>

#include "base/error.h"

namespace winnow::kernels {

void turns_at(const Rotation& rotation, int pos, std::span<float> turns) {
  WINNOW_CHECK(turns.size() == rotation.n_rot());
  const size_t n_pairs = rotation.pairs.size();
  auto angle = static_cast<float>(pos);
  for (size_t i = 0; i < n_pairs; ++i) {
    const Rotation::Pair& pair = rotation.pairs[i];
    const float unscaled = angle / pair.divisor;
    const float turned =
        rotation.scale * unscaled * (1.0F - pair.unscaled) + unscaled * pair.unscaled;
    turns[i] = std::cos(turned);
    turns[n_pairs + i] = std::sin(turned);
    angle *= rotation.step;
  }
}

// A mean of points at equal distances on a circle is the one in their middle, drawn towards the centre.
void mean_turns(const Rotation& rotation, int first_pos, int n, std::span<double> turns) {
  WINNOW_CHECK(turns.size() == rotation.n_rot() && n > 0);
  const size_t n_pairs = rotation.pairs.size();
  double frequency = 1;  // before scaling
  for (size_t i = 0; i < n_pairs; ++i) {
    const Rotation::Pair& pair = rotation.pairs[i];
    const auto unscaled = static_cast<double>(pair.unscaled);
    const double angle = frequency / static_cast<double>(pair.divisor) *
                         (static_cast<double>(rotation.scale) * (1 - unscaled) + unscaled);
    constexpr double kWholeTurn = 1e-12;  // of which each point is at the same place
    const double sine = std::sin(angle / 2);
    const bool is_whole = std::abs(sine) < kWholeTurn;
    const double radius = is_whole ? 1 : std::sin(n * angle / 2) / (n * sine);
    const double middle = is_whole ? first_pos * angle : (first_pos + (n - 1) / 2.0) * angle;
    turns[i] = radius * std::cos(middle);
    turns[n_pairs + i] = radius * std::sin(middle);
    frequency *= static_cast<double>(rotation.step);
  }
}

namespace {

// Layouts apart, so that each loop has fixed strides.
template <class Element>
void turn_pairs(size_t n_pairs, const float* turns, float sign, const Element& element) {
  for (size_t i = 0; i < n_pairs; ++i) {
    const float cosine = turns[i];
    const float sine = sign * turns[n_pairs + i];
    float& first = element(i, 0);
    float& second = element(i, 1);
    const float turned = first * cosine - second * sine;
    second = first * sine + second * cosine;
    first = turned;
  }
}

void turn_by(const Rotation& rotation, std::span<const float> turns, float sign,
             std::span<float> x) {
  WINNOW_CHECK(turns.size() == rotation.n_rot() && x.size() >= turns.size());
  const size_t n_pairs = rotation.pairs.size();
  float* const elements = x.data();
  if (rotation.layout == Rotation::Pairs::kHalves) {
    turn_pairs(n_pairs, turns.data(), sign,
               [=](size_t i, size_t half) -> float& { return elements[i + half * n_pairs]; });
  } else {
    turn_pairs(n_pairs, turns.data(), sign,
               [=](size_t i, size_t half) -> float& { return elements[2 * i + half]; });
  }
}

}  // namespace

void turn_strided(const Rotation& rotation, std::span<const double> turns, double* x,
                  size_t stride) {
  const size_t n_pairs = rotation.pairs.size();
  for (size_t pair = 0; pair < n_pairs; ++pair) {
    double& first = x[rotation.first(pair) * stride];
    double& second = x[rotation.second(pair) * stride];
    const double turned = first * turns[pair] - second * turns[n_pairs + pair];
    second = first * turns[n_pairs + pair] + second * turns[pair];
    first = turned;
  }
}

void turn(const Rotation& rotation, std::span<const float> turns, std::span<float> x) {
  turn_by(rotation, turns, 1.0F, x);
}

void turn_back(const Rotation& rotation, std::span<const float> turns, std::span<float> x) {
  turn_by(rotation, turns, -1.0F, x);
}

}  // namespace winnow::kernels
