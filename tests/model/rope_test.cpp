// What rope options mean beside what a file states, and which make no sense. Their numbers are checked against libllama's
// in libllama_test.cpp.

#include "model/rope.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/model.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::model {
namespace {

constexpr int kTrained = 4096;

Rope stated(RopeScaling scaling, float factor, int n_ctx_orig = 0) {
  return {.scaling = scaling, .freq_scale = 1.0F / factor, .n_ctx_orig = n_ctx_orig};
}

const Rope kPlain = {};
const Rope kYarnFile = stated(RopeScaling::kYarn, 4.0F, 1024);

void expect_refused(const Rope& file, const RopeOptions& options,
                    const std::vector<std::string>& parts) {
  const std::string message =
      test::error_of(ErrorCode::kInvalidArgument, [&] { resolve_rope(file, options, kTrained); });
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
}

TEST(RopeScaling, NamesComeBack) {
  for (const auto scaling :
       {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kYarn, RopeScaling::kLongrope}) {
    EXPECT_EQ(find_rope_scaling(rope_scaling_name(scaling)), scaling);
  }
  EXPECT_EQ(find_rope_scaling("ntk"), std::nullopt);
  EXPECT_EQ(find_rope_scaling(""), std::nullopt);
}

TEST(RopeOptions, WithoutAnyTheFileIsHeeded) {
  EXPECT_FALSE(RopeOptions{}.is_given());
  const Rope rope = resolve_rope(kYarnFile, {}, kTrained);
  EXPECT_EQ(rope.freq_scale, 0.25F);
  EXPECT_EQ(rope.ext_factor, 1.0F);
  EXPECT_EQ(rope.n_ctx_orig, 1024);
  EXPECT_EQ(scaled_context(kYarnFile, {}, kTrained), kTrained);
  EXPECT_EQ(resolve_rope(kPlain, {}, kTrained).n_ctx_orig, kTrained);
}

TEST(RopeOptions, AScaleAloneIsLinear) {
  const Rope rope = resolve_rope(kPlain, {.scale = 4.0F}, kTrained);
  EXPECT_EQ(rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope.freq_scale, 0.25F);
  EXPECT_EQ(rope.ext_factor, 0.0F);
  EXPECT_EQ(rope.attn_factor, 1.0F);
}

TEST(RopeOptions, NoneTakesTheFilesScaleAway) {
  const RopeOptions none{.scaling = RopeScaling::kNone};
  const Rope rope = resolve_rope(kYarnFile, none, kTrained);
  EXPECT_EQ(rope.freq_scale, 1.0F);
  EXPECT_EQ(rope.ext_factor, 0.0F);
  EXPECT_EQ(scaled_context(kYarnFile, none, kTrained), 1024);
}

TEST(RopeOptions, ScaleTheContext) {
  EXPECT_EQ(scaled_context(kPlain, {.scale = 3.0F}, kTrained), 3 * kTrained);
  EXPECT_EQ(scaled_context(kPlain, {.freq_scale = 0.5F}, kTrained), 2 * kTrained);
  EXPECT_EQ(scaled_context(kPlain, {.freq_scale = 2.0F}, kTrained), kTrained / 2);
  EXPECT_EQ(scaled_context(kPlain, {.freq_base = 1e6F}, kTrained), kTrained);
  EXPECT_EQ(scaled_context(kYarnFile, {.scale = 16.0F}, kTrained), 16384);
  EXPECT_EQ(scaled_context(stated(RopeScaling::kLinear, 4.0F), {.scale = 8.0F}, kTrained),
            2 * kTrained);
  EXPECT_EQ(
      scaled_context(kPlain, {.scaling = RopeScaling::kYarn, .scale = 4.0F, .yarn_orig_ctx = 2000},
                     kTrained),
      8000);
  EXPECT_EQ(scaled_context(kPlain, {.scale = 1e6F}, 1 << 20), 1 << 30);
  EXPECT_EQ(scaled_context(kPlain, {.freq_scale = 1e3F}, 8), 1);
}

TEST(RopeOptions, RefuseValuesOutOfRange) {
  expect_refused(kPlain, {.scale = -2.0F}, {"--rope-scale -2", "0.001 to 1000000", "or 0"});
  expect_refused(kPlain, {.scale = std::numeric_limits<float>::quiet_NaN()}, {"--rope-scale nan"});
  expect_refused(kPlain, {.freq_scale = std::numeric_limits<float>::infinity()},
                 {"--rope-freq-scale inf", "0.000001 to 1000"});
  expect_refused(kPlain, {.freq_base = 0.5F}, {"--rope-freq-base 0.5", "1 to 10000000000,"});
  expect_refused(kYarnFile, {.yarn_orig_ctx = -1}, {"--yarn-orig-ctx -1", "1 to"});
  expect_refused(kYarnFile, {.yarn_ext_factor = 1.5F}, {"--yarn-ext-factor 1.5", "0 to 1", "-1"});
  expect_refused(kYarnFile, {.yarn_attn_factor = 0.0F}, {"--yarn-attn-factor 0", "0.001 to 1000"});
  expect_refused(kYarnFile, {.yarn_beta_slow = 0.0F}, {"--yarn-beta-slow 0"});
  expect_refused(kYarnFile, {.yarn_beta_fast = -3.0F}, {"--yarn-beta-fast -3"});
}

TEST(RopeOptions, RefuseWhatContradictsOrSaysNothing) {
  expect_refused(kPlain, {.scale = 4.0F, .freq_scale = 0.25F},
                 {"--rope-scale 4", "--rope-freq-scale 0.25", "give one"});
  expect_refused(kPlain, {.scaling = RopeScaling::kNone, .scale = 4.0F},
                 {"--rope-scale", "--rope-scaling none", "linear or yarn"});
  expect_refused(stated(RopeScaling::kNone, 1.0F), {.freq_scale = 0.5F},
                 {"the model's own rope scaling, none"});
  expect_refused(kPlain, {.scaling = RopeScaling::kYarn},
                 {"--rope-scaling yarn needs a scale (--rope-scale N)"});
  expect_refused(kPlain, {.scaling = RopeScaling::kLongrope, .scale = 4.0F},
                 {"longrope", "none, linear, yarn"});
  expect_refused(kPlain, {.scale = 4.0F, .yarn_orig_ctx = 100},
                 {"--yarn", "the model's own rope scaling, linear", "--rope-scaling yarn"});
  expect_refused(kYarnFile, {.scaling = RopeScaling::kLinear, .yarn_ext_factor = 1.0F},
                 {"--yarn", "--rope-scaling linear"});
  expect_refused(kYarnFile, {.yarn_attn_factor = 1.2F},
                 {"--yarn-attn-factor", "factor of 1", "--yarn-ext-factor 0"});
  expect_refused(kYarnFile, {.yarn_ext_factor = 0.0F, .yarn_beta_fast = 20.0F},
                 {"--yarn-beta-fast", "--yarn-ext-factor 0"});
  expect_refused(kYarnFile, {.yarn_beta_slow = 40.0F},
                 {"--yarn-beta-slow 40", "--yarn-beta-fast 32"});
}

TEST(RopeOptions, AreRefusedBesideLongRope) {
  test::TinyModelOptions options;
  options.architecture = "phi3";
  options.rope_scaling = "longrope";
  options.context_factors = true;
  options.n_ctx_orig = 256;
  const std::string path = test::write_tiny_model(options);
  for (const RopeOptions& rope : {RopeOptions{.scale = 2.0F}, RopeOptions{.freq_base = 5000.0F}}) {
    const std::string message =
        test::error_of(ErrorCode::kUnsupported, [&] { const Model model(path, {.rope = rope}); });
    EXPECT_NE(message.find("longrope"), std::string::npos) << message;
    EXPECT_NE(message.find(path), std::string::npos) << message;
  }
}

// Windows turn with a base of their own and are never scaled.
TEST(RopeOptions, LeaveLayersWithAWindowAlone) {
  test::TinyModelOptions options;
  options.architecture = "gemma3";
  options.n_layers = 7;
  options.sentencepiece = true;
  options.swa_window = 40;
  const Model model(test::write_tiny_model(options), {.rope = {.scale = 4.0F, .freq_base = 7e4F}});
  EXPECT_EQ(model.hyper().rope_of(5).freq_scale, 0.25F);
  EXPECT_EQ(model.hyper().rope_of(5).freq_base, 7e4F);
  EXPECT_EQ(model.hyper().rope_of(6).freq_scale, 1.0F);
  EXPECT_EQ(model.hyper().rope_of(6).freq_base, 10000.0F);
  EXPECT_EQ(model.hyper().n_ctx_train, 4096);
  EXPECT_EQ(model.hyper().n_ctx_scaled, 16384);
}

}  // namespace
}  // namespace winnow::model
