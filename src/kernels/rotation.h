// How positions rotate queries and keys, for what turns them outside of graphs: the angles of ggml_rope_ext, without the
// magnitude that it multiplies with on top.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace winnow::kernels {

struct Rotation {
  enum class Pairs { kNeighbours, kHalves };

  struct Pair {
    float divisor = 1.0F;   // of its frequency
    float unscaled = 0.0F;  // the share of its angle that scaling leaves as it is
  };

  Pairs layout = Pairs::kNeighbours;
  float step =
      1.0F;  // a pair turns by so much of what the one before does; the first by 1 a position
  float scale = 1.0F;       // positions are multiplied with it
  std::vector<Pair> pairs;  // [n_rot / 2]; what follows the first n_rot elements does not turn

  size_t n_rot() const { return 2 * pairs.size(); }
  // The elements of pair i.
  size_t first(size_t pair) const { return layout == Pairs::kHalves ? pair : 2 * pair; }
  size_t second(size_t pair) const {
    return layout == Pairs::kHalves ? pair + pairs.size() : 2 * pair + 1;
  }
};

// How far the pairs turn: cosines, then sines. turns [n_rot]. In the arithmetic of ggml_rope_ext, whose angles are floats.
void turns_at(const Rotation& rotation, int pos, std::span<float> turns);

// The mean of the turns at n positions from first_pos on, of angles that are not rounded. turns [n_rot].
void mean_turns(const Rotation& rotation, int first_pos, int n, std::span<double> turns);

// By turns that are means, in double: elements first and second of each pair lie at x + stride · element.
void turn_strided(const Rotation& rotation, std::span<const double> turns, double* x,
                  size_t stride);

// x [>= n_rot] is turned forwards or, by the transpose of that, back. Turns that are no means leave lengths as they are.
void turn(const Rotation& rotation, std::span<const float> turns, std::span<float> x);
void turn_back(const Rotation& rotation, std::span<const float> turns, std::span<float> x);

}  // namespace winnow::kernels
