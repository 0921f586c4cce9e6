// numpy's random.default_rng(seed), draw for draw: published synthetic rows are made with it. Matches numpy 1.18 to 2.4:
// SeedSequence, PCG64 (XSL-RR 128/64), ziggurat normals, Floyd's choice.
#pragma once

#include <cstdint>
#include <vector>

namespace winnow::eval {

class NumpyRandom {
 public:
  // numpy.random.default_rng(seed)
  explicit NumpyRandom(uint64_t seed);

  // random(): in [0, 1), 53 bits.
  double random();
  // standard_normal(), to 13 digits: its table of layers is computed here, and numpy's was rounded otherwise.
  double standard_normal();
  // choice(n, size=k, replace=False), for 0 <= k <= n <= 10000: k different numbers below n, in the order drawn.
  std::vector<int64_t> choice(int64_t n, int64_t k);

 private:
  uint64_t next();
  uint32_t next_half();                 // the halves of one draw, the lower first
  uint32_t below_or_at(uint32_t most);  // in [0, most]

  __extension__ typedef unsigned __int128 State;
  State state_ = 0;
  State increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace winnow::eval
