#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/name_table.h"
#include "base/text.h"
#include "ggml.h"

namespace winnow::model {
namespace {

constexpr NameTable<RopeScaling, 4> kScalings{"rope scaling",
                                              {{RopeScaling::kNone, "none"},
                                               {RopeScaling::kLinear, "linear"},
                                               {RopeScaling::kYarn, "yarn"},
                                               {RopeScaling::kLongrope, "longrope"}}};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, what);
}

void check_ranges(RopeOptions options) {  // a copy: visitors may write
  const auto check = [](auto value, const char* name, auto low, auto high, auto as_stated,
                        const char* /*help*/) {
    if (value != as_stated && !(value >= low && value <= high)) {
      refuse("--" + std::string(name) + " " + number_text(value) + " is out of range (" +
             number_text(low) + " to " + number_text(high) + ", or " + number_text(as_stated) +
             " for what the model's file states)");
    }
  };
  options.visit(check);
}

bool has_yarn_options(const RopeOptions& options) {
  return options.yarn_orig_ctx > 0 || options.yarn_ext_factor >= 0 ||
         options.yarn_attn_factor >= 0 || options.yarn_beta_slow >= 0 ||
         options.yarn_beta_fast >= 0;
}

bool is_scale_given(const RopeOptions& options) {
  return options.scale != 0 || options.freq_scale != 0;
}

// What the rotation would be, whether or not it makes sense.
Rope apply(const Rope& stated, const RopeOptions& options) {
  Rope rope = stated;
  const auto take = [](float& field, float given) { field = given >= 0 ? given : field; };
  rope.scaling = options.scaling.value_or(stated.scaling);
  rope.freq_base = options.freq_base != 0 ? options.freq_base : stated.freq_base;
  if (options.scale != 0) {
    rope.freq_scale = 1.0F / options.scale;
  } else if (options.freq_scale != 0) {
    rope.freq_scale = options.freq_scale;
  }
  if (rope.scaling == RopeScaling::kNone) {
    rope.freq_scale = 1.0F;
  }
  rope.ext_factor = rope.scaling == RopeScaling::kYarn ? 1.0F : 0.0F;
  take(rope.ext_factor, options.yarn_ext_factor);
  take(rope.beta_slow, options.yarn_beta_slow);
  take(rope.beta_fast, options.yarn_beta_fast);
  return rope;
}

void check_combination(const Rope& stated, const RopeOptions& options, const Rope& rope) {
  const std::string type = rope_scaling_name(rope.scaling);
  const std::string source =
      options.scaling ? "--rope-scaling " + type : "the model's own rope scaling, " + type;
  if (options.scaling == RopeScaling::kLongrope) {
    refuse("--rope-scaling longrope comes with a model's file (allowed: none, linear, yarn)");
  }
  if (options.scale != 0 && options.freq_scale != 0) {
    refuse("--rope-scale " + number_text(options.scale) + " and --rope-freq-scale " +
           number_text(options.freq_scale) + " both say how positions are scaled; give one");
  }
  if (rope.scaling == RopeScaling::kNone && is_scale_given(options)) {
    refuse("--rope-scale and --rope-freq-scale have no effect with " + source +
           "; --rope-scaling linear or yarn scales");
  }
  const bool is_scaled = is_scale_given(options) || stated.freq_scale != 1.0F;
  if (options.scaling && *options.scaling != RopeScaling::kNone && !is_scaled) {
    refuse(source + " needs a scale (--rope-scale N), since the model's file states none");
  }
  if (rope.scaling != RopeScaling::kYarn && has_yarn_options(options)) {
    refuse("the --yarn options have no effect with " + source + "; they need --rope-scaling yarn");
  }
  if (options.yarn_attn_factor >= 0 && rope.ext_factor != 0) {
    refuse("--yarn-attn-factor has no effect with an extrapolation factor of " +
           number_text(rope.ext_factor) +
           ", which brings YaRN's own magnitude; it needs --yarn-ext-factor 0");
  }
  const bool has_betas = options.yarn_beta_slow >= 0 || options.yarn_beta_fast >= 0;
  if (has_betas && rope.ext_factor == 0) {
    refuse("--yarn-beta-slow and --yarn-beta-fast have no effect with --yarn-ext-factor 0");
  }
  if (has_betas && rope.beta_slow >= rope.beta_fast) {
    refuse("--yarn-beta-slow " + number_text(rope.beta_slow) + " is not below --yarn-beta-fast " +
           number_text(rope.beta_fast));
  }
}

// ggml multiplies q and k by 1 + 0.1 ln(factor) where it mixes in extrapolation. libllama asks for the magnitude of the
// yarn paper (arXiv:2309.00071v2, section 3.4) over that, which is 1 but for the last bit: kept for equal bits.
float yarn_attn_factor(float freq_scale) {
  const float factor = 1.0F / freq_scale;
  const float of_ggml = 1.0F + 0.1F * logf(factor);
  const float wanted = factor <= 1.0F ? 1.0F : of_ggml;
  return wanted * (1.0F / of_ggml);
}

}  // namespace

const char* rope_scaling_name(RopeScaling scaling) {
  return kScalings.name(scaling);
}

std::optional<RopeScaling> find_rope_scaling(std::string_view name) {
  return kScalings.find(name);
}

bool RopeOptions::is_given() const {
  return scaling.has_value() || is_scale_given(*this) || freq_base != 0 || has_yarn_options(*this);
}

kernels::Rotation rotation(const Rope& rope, std::span<const float> factors) {
  WINNOW_CHECK(rope.mode == GGML_ROPE_TYPE_NORMAL || rope.mode == GGML_ROPE_TYPE_NEOX);
  WINNOW_CHECK(factors.empty() || std::ssize(factors) == rope.n_rot / 2);
  kernels::Rotation rotation{
      .layout = rope.mode == GGML_ROPE_TYPE_NEOX ? kernels::Rotation::Pairs::kHalves
                                                 : kernels::Rotation::Pairs::kNeighbours,
      .step = powf(rope.freq_base, -2.0F / static_cast<float>(rope.n_rot)),
      .scale = rope.freq_scale,
      .pairs = std::vector<kernels::Rotation::Pair>(static_cast<size_t>(rope.n_rot / 2))};
  float ramp[2] =
      {};  // yarn: pairs up to the first stay as they are, those from the second on are scaled
  if (rope.ext_factor != 0) {
    ggml_rope_yarn_corr_dims(rope.n_rot, rope.n_ctx_orig, rope.freq_base, rope.beta_fast,
                             rope.beta_slow, ramp);
  }
  for (size_t i = 0; i < rotation.pairs.size(); ++i) {
    const float at = (static_cast<float>(i) - ramp[0]) / std::max(0.001F, ramp[1] - ramp[0]);
    rotation.pairs[i] = {.divisor = factors.empty() ? 1.0F : factors[i],
                         .unscaled = (1 - std::clamp(at, 0.0F, 1.0F)) * rope.ext_factor};
  }
  return rotation;
}

bool is_long_context(const Rope& rope, int n_ctx) {
  constexpr int kContextUnit = 256;  // libllama compares a context rounded up to whole units
  return (n_ctx + kContextUnit - 1) / kContextUnit * kContextUnit > rope.n_ctx_orig;
}

Rope resolve_rope(const Rope& stated, const RopeOptions& options, int n_ctx_train) {
  check_ranges(options);
  Rope rope = apply(stated, options);
  check_combination(stated, options, rope);
  if (options.yarn_orig_ctx > 0) {
    rope.n_ctx_orig = options.yarn_orig_ctx;
  } else if (rope.n_ctx_orig == 0) {
    rope.n_ctx_orig = n_ctx_train;
  }
  if (rope.ext_factor != 0) {
    rope.attn_factor = yarn_attn_factor(rope.freq_scale);
  } else {
    rope.attn_factor = options.yarn_attn_factor >= 0 ? options.yarn_attn_factor : 1.0F;
  }
  rope.attn_factor *= stated.attn_factor;
  return rope;
}

int scaled_context(const Rope& stated, const RopeOptions& options, int n_ctx_train) {
  const float stated_scale = stated.scaling == RopeScaling::kNone ? 1.0F : stated.freq_scale;
  const float scale = apply(stated, options).freq_scale;
  if (scale == stated_scale && options.yarn_orig_ctx == 0) {
    return n_ctx_train;
  }
  double original = double{stated_scale} * n_ctx_train;
  if (options.yarn_orig_ctx > 0) {
    original = options.yarn_orig_ctx;
  } else if (stated.n_ctx_orig > 0) {
    original = stated.n_ctx_orig;
  }
  constexpr double kMostPositions = 1 << 30;
  return static_cast<int>(std::clamp(std::round(original / double{scale}), 1.0, kMostPositions));
}

}  // namespace winnow::model
