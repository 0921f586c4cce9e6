// How positions rotate q and k: what the file states, and what the user says instead of it.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "kernels/rotation.h"

namespace winnow::model {

enum class RopeScaling { kNone, kLinear, kYarn, kLongrope };

const char* rope_scaling_name(RopeScaling scaling);  // as files spell it
std::optional<RopeScaling> find_rope_scaling(std::string_view name);

// What ggml_rope_ext takes.
struct Rope {
  RopeScaling scaling = RopeScaling::kLinear;
  int mode = 0;   // ggml's: 0 rotates neighbouring pairs, 2 (NeoX) halves
  int n_rot = 0;  // leading dimensions of a head that rotate
  float freq_base = 10000.0F;
  float freq_scale = 1.0F;   // 1 / scaling factor
  float ext_factor = 0.0F;   // 1: yarn, which leaves fast rotations as they are; 0: all are scaled
  float attn_factor = 1.0F;  // q and k are multiplied with it, beside yarn's own magnitude
  float beta_fast = 32.0F;   // yarn: faster than so many turns in n_ctx_orig is left as it is
  float beta_slow = 1.0F;    // yarn: slower is scaled, in between is mixed
  int n_ctx_orig = 0;        // the context length before scaling
};

// The same for use outside of graphs. `factors` [n_rot / 2] divide the frequencies; none: they are as they are.
kernels::Rotation rotation(const Rope& rope, std::span<const float> factors);

// Whether models that have rotation factors for long contexts and for others take the former, in a session of at most
// n_ctx positions.
bool is_long_context(const Rope& rope, int n_ctx);

// llama.cpp's options of the same names. 0, or -1 where 0 would be a value: as the file states.
struct RopeOptions {
  std::optional<RopeScaling> scaling = {};  // none, linear or yarn
  float scale = 0.0F;
  float freq_base = 0.0F;
  float freq_scale = 0.0F;
  int yarn_orig_ctx = 0;
  float yarn_ext_factor = -1.0F;
  float yarn_attn_factor = -1.0F;
  float yarn_beta_slow = -1.0F;
  float yarn_beta_fast = -1.0F;

  // v(field, name, low, high, what stands for the file's value, help)
  template <typename Visitor>
  void visit(Visitor& v) {
    v(scale, "rope-scale", 1e-3F, 1e6F, 0.0F, "the context becomes N times as long");
    v(freq_base, "rope-freq-base", 1.0F, 1e10F, 0.0F, "base of the rotation frequencies");
    v(freq_scale, "rope-freq-scale", 1e-6F, 1e3F, 0.0F, "the same as --rope-scale 1/N");
    v(yarn_orig_ctx, "yarn-orig-ctx", 1, 1 << 30, 0, "YaRN: the context length before scaling");
    v(yarn_ext_factor, "yarn-ext-factor", 0.0F, 1.0F, -1.0F,
      "YaRN: how far fast rotations stay as they are; 0 scales all of them");
    v(yarn_attn_factor, "yarn-attn-factor", 1e-3F, 1e3F, -1.0F,
      "YaRN without extrapolation: q and k are multiplied with it");
    v(yarn_beta_slow, "yarn-beta-slow", 1e-3F, 1e6F, -1.0F,
      "YaRN: rotations of fewer turns in the original context are scaled");
    v(yarn_beta_fast, "yarn-beta-fast", 1e-3F, 1e6F, -1.0F,
      "YaRN: rotations of more turns in the original context stay as they are");
  }

  bool is_given() const;
};

// `stated`: as the file has it, where attn_factor is what it multiplies with on top, n_ctx_orig is 0 where it states
// none, and ext_factor is not used. Throws invalid_argument for values out of range and for options that contradict
// each other or would have no effect.
Rope resolve_rope(const Rope& stated, const RopeOptions& options, int n_ctx_train);

// The context a model is good for once the options have scaled it: n_ctx_train, times the factor by which they changed
// the file's scale.
int scaled_context(const Rope& stated, const RopeOptions& options, int n_ctx_train);

}  // namespace winnow::model
