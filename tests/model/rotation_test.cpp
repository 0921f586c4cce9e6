// Rotations outside of graphs against ggml_rope_ext, for all that files and options may ask for.

#include "kernels/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "model/rope.h"
#include "support/random_rows.h"

namespace winnow::model {
namespace {

struct RotationCase {
  std::string name;
  Rope rope;
  int head_dim = 64;
  bool has_factors = false;
};

Rope rope(int mode, RopeScaling scaling, float freq_scale, int n_rot = 64) {
  Rope rope{.scaling = scaling, .mode = mode, .n_rot = n_rot, .freq_scale = freq_scale};
  rope.n_ctx_orig = 2048;
  rope.ext_factor = scaling == RopeScaling::kYarn ? 1.0F : 0.0F;
  return rope;
}

std::vector<RotationCase> rotation_cases() {
  std::vector<RotationCase> cases;
  for (const int mode : {GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX}) {
    const std::string layout = mode == GGML_ROPE_TYPE_NEOX ? "Halves" : "Neighbours";
    cases.push_back({layout + "Plain", rope(mode, RopeScaling::kNone, 1.0F)});
    cases.push_back({layout + "Linear", rope(mode, RopeScaling::kLinear, 0.25F)});
    cases.push_back({layout + "Yarn", rope(mode, RopeScaling::kYarn, 0.25F)});
    cases.push_back({layout + "Partial", rope(mode, RopeScaling::kNone, 1.0F, 48)});
    cases.push_back({layout + "Factors", rope(mode, RopeScaling::kNone, 1.0F), 64, true});
    cases.push_back({layout + "YarnWithFactors", rope(mode, RopeScaling::kYarn, 0.1F), 96, true});
    Rope magnified = rope(mode, RopeScaling::kLongrope, 1.0F);
    magnified.attn_factor = 1.19F;
    cases.push_back({layout + "Magnified", magnified, 64, true});
    Rope half = rope(mode, RopeScaling::kYarn, 0.25F);
    half.ext_factor = 0.5F;
    half.beta_fast = 16.0F;
    half.freq_base = 1e6F;
    cases.push_back({layout + "HalfExtrapolated", half});
  }
  return cases;
}

// ggml_rope_ext of x [n_positions, head_dim].
std::vector<float> rotate_by_ggml(const RotationCase& c, const std::vector<float>& x,
                                  const std::vector<int32_t>& positions,
                                  const std::vector<float>& factors) {
  const ggml_context_ptr ctx(
      ggml_init({.mem_size = size_t{1} << 24, .mem_buffer = nullptr, .no_alloc = false}));
  const auto n = static_cast<int64_t>(positions.size());
  ggml_tensor* input = ggml_new_tensor_3d(ctx.get(), GGML_TYPE_F32, c.head_dim, 1, n);
  std::memcpy(input->data, x.data(), ggml_nbytes(input));
  ggml_tensor* at = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, n);
  std::memcpy(at->data, positions.data(), ggml_nbytes(at));
  ggml_tensor* divisors = nullptr;
  if (!factors.empty()) {
    divisors = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, std::ssize(factors));
    std::memcpy(divisors->data, factors.data(), ggml_nbytes(divisors));
  }
  ggml_tensor* output =
      ggml_rope_ext(ctx.get(), input, at, divisors, c.rope.n_rot, c.rope.mode, c.rope.n_ctx_orig,
                    c.rope.freq_base, c.rope.freq_scale, c.rope.ext_factor, c.rope.attn_factor,
                    c.rope.beta_fast, c.rope.beta_slow);
  ggml_cgraph* graph = ggml_new_graph(ctx.get());
  ggml_build_forward_expand(graph, output);
  ggml_graph_compute_with_ctx(ctx.get(), graph, 1);
  const auto* const data = static_cast<const float*>(output->data);
  return {data, data + x.size()};
}

class RotationOfRope : public testing::TestWithParam<RotationCase> {
 protected:
  std::vector<float> factors() const {
    std::vector<float> factors;
    for (int i = 0; GetParam().has_factors && i < GetParam().rope.n_rot / 2; ++i) {
      factors.push_back(1.0F + static_cast<float>(i * i) / 70.0F);
    }
    return factors;
  }
  // What ggml multiplies with, beside turning.
  double magnitude() const {
    const Rope& rope = GetParam().rope;
    const double yarn =
        rope.ext_factor == 0 ? 1 : 1 + 0.1 * std::log(1 / static_cast<double>(rope.freq_scale));
    return static_cast<double>(rope.attn_factor) * yarn;
  }
  // A compiler may fuse what yarn mixes an angle from, which changes its last bit: the more, the larger it is.
  static double tolerance(int pos) {
    return GetParam().rope.ext_factor == 0 ? 1e-6 : 1e-6 + 1e-8 * pos;
  }
};

TEST_P(RotationOfRope, IsGgmls) {
  const auto dim = static_cast<size_t>(GetParam().head_dim);
  const std::vector<int32_t> positions{0, 1, 2, 100, 511, 4096, 32000, 131071};
  std::mt19937 random(1);
  const auto x = test::random_floats(random, positions.size() * dim);
  const std::vector<float> expected = rotate_by_ggml(GetParam(), x, positions, factors());
  const kernels::Rotation turning = rotation(GetParam().rope, factors());
  std::vector<float> turns(turning.n_rot());
  for (size_t i = 0; i < positions.size(); ++i) {
    kernels::turns_at(turning, positions[i], turns);
    std::vector<float> turned(x.begin() + static_cast<std::ptrdiff_t>(i * dim),
                              x.begin() + static_cast<std::ptrdiff_t>((i + 1) * dim));
    const std::vector<float> before = turned;
    kernels::turn(turning, turns, turned);
    for (size_t e = 0; e < dim; ++e) {
      const double factor = e < turning.n_rot() ? magnitude() : 1;
      ASSERT_NEAR(static_cast<double>(turned[e]) * factor, expected[i * dim + e],
                  tolerance(positions[i]) * factor)
          << positions[i] << " " << e;
    }
    kernels::turn_back(turning, turns, turned);
    for (size_t e = 0; e < dim; ++e) {
      ASSERT_NEAR(turned[e], before[e], 1e-6) << positions[i] << " " << e;
    }
  }
}

TEST_P(RotationOfRope, HasTheMeanOfItsTurns) {
  const kernels::Rotation turning = rotation(GetParam().rope, factors());
  std::vector<float> turns(turning.n_rot());
  std::vector<double> mean(turning.n_rot());
  for (const int n : {1, 2, 512}) {
    for (const int first_pos : {0, 100, 3000}) {
      std::vector<double> expected(turning.n_rot());
      for (int pos = first_pos; pos < first_pos + n; ++pos) {
        kernels::turns_at(turning, pos, turns);
        for (size_t i = 0; i < turns.size(); ++i) {
          expected[i] += static_cast<double>(turns[i]) / n;
        }
      }
      kernels::mean_turns(turning, first_pos, n, mean);
      for (size_t i = 0; i < mean.size(); ++i) {
        ASSERT_NEAR(mean[i], expected[i], 1e-6 * (1 + first_pos + n)) << n << " " << first_pos;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RotationOfRope, testing::ValuesIn(rotation_cases()),
                         [](const auto& instance) { return instance.param.name; });

// Every position turns a pair by whole turns: each of them stays where the first is.
TEST(RotationByWholeTurns, HasAMean) {
  const kernels::Rotation turning{
      .step = 1.0F, .scale = 0.0F, .pairs = {{.divisor = 1.0F, .unscaled = 0.0F}}};
  std::vector<double> mean(2);
  kernels::mean_turns(turning, 77, 512, mean);
  EXPECT_EQ(mean, (std::vector<double>{1.0, 0.0}));
}

}  // namespace
}  // namespace winnow::model
