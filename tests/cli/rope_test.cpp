// Rope scaling by flag, and the context that no run goes beyond unless asked.

#include <iterator>

#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

void expect_run_refused(const Args& args, int status, const std::vector<std::string>& parts) {
  expect_refused(run_winnow(tiny_run(args)), status, parts);
}

json rope_of(const Args& flags) {
  return tiny_json(joined({"-p", "hello", "-n", "1"}, flags))["rope"];
}

TEST(Rope, IsReportedAsTheFileStatesIt) {
  EXPECT_EQ(rope_of({}), (json{{"scaling", "linear"},
                               {"freq_base", 20000.0},
                               {"freq_scale", 1.0},
                               {"ext_factor", 0.0},
                               {"attn_factor", 1.0},
                               {"beta_slow", 1.0},
                               {"beta_fast", 32.0},
                               {"n_ctx_orig", 4096},
                               {"n_ctx_scaled", 4096}}));
}

TEST(Rope, IsWhatTheFlagsSay) {
  const json yarn =
      rope_of({"--rope-scaling", "yarn", "--rope-scale", "10", "--rope-freq-base", "1e6",
               "--yarn-orig-ctx", "2000", "--yarn-beta-slow", "1.5", "--yarn-beta-fast", "24"});
  EXPECT_EQ(yarn["scaling"], "yarn");
  EXPECT_EQ(yarn["freq_base"], 1e6);
  EXPECT_EQ(yarn["freq_scale"], 0.1);
  EXPECT_EQ(yarn["ext_factor"], 1.0);
  EXPECT_EQ(yarn["beta_slow"], 1.5);
  EXPECT_EQ(yarn["beta_fast"], 24.0);
  EXPECT_EQ(yarn["n_ctx_orig"], 2000);
  EXPECT_EQ(yarn["n_ctx_scaled"], 20000);
  const json interpolated = rope_of({"--rope-scaling", "yarn", "--rope-freq-scale", "0.5",
                                     "--yarn-ext-factor", "0", "--yarn-attn-factor", "1.25"});
  EXPECT_EQ(interpolated["ext_factor"], 0.0);
  EXPECT_EQ(interpolated["attn_factor"], 1.25);
  EXPECT_EQ(interpolated["n_ctx_scaled"], 8192);
}

// llama.cpp's own defaults, given by hand.
TEST(Rope, ZeroAndMinusOneAreTheFiles) {
  EXPECT_EQ(rope_of({"--rope-freq-base", "0", "--rope-freq-scale", "0", "--yarn-orig-ctx", "0",
                     "--yarn-ext-factor", "-1", "--yarn-attn-factor", "-1", "--yarn-beta-slow",
                     "-1", "--yarn-beta-fast", "-1"}),
            rope_of({}));
}

TEST(Rope, ChangesTheLogits) {
  const auto logits = [](const Args& flags) {
    const std::string path = temporary_path("rope-logits.npy");
    tiny_json(joined({"-p", words(50), "-n", "1", "--dump-logits", path}, flags));
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string plain = logits({});
  EXPECT_NE(logits({"--rope-scale", "4"}), plain);
  EXPECT_EQ(logits({"--rope-scale", "1"}), plain);
}

TEST(Rope, RefusesWhatMakesNoSense) {
  const auto refused = [](const Args& flags, const std::vector<std::string>& parts) {
    expect_run_refused(joined({"-p", "hello"}, flags), kInvalidArgument, parts);
  };
  refused({"--rope-scaling", "ntk"}, {"--rope-scaling", "'ntk'", "none, linear, yarn"});
  refused({"--rope-scaling", "longrope"}, {"'longrope'", "none, linear, yarn"});
  refused({"--rope-scaling", ""}, {"--rope-scaling"});
  refused({"--rope-scale", "four"}, {"--rope-scale", "four"});
  refused({"--rope-scale", "nan"}, {"--rope-scale nan", "0.001 to 1000000"});
  refused({"--rope-freq-scale", "1e-300"}, {"--rope-freq-scale", "1e-300"});
  refused({"--rope-scaling", "yarn", "--rope-scale", "2", "--yarn-orig-ctx", "2147483647"},
          {"--yarn-orig-ctx 2147483647", "1 to 1073741824"});
  refused({"--rope-freq-base", "-1"}, {"--rope-freq-base -1", "1 to"});
  refused({"--rope-scale", "2", "--rope-freq-scale", "0.5"}, {"give one"});
  refused({"--yarn-ext-factor", "0.5"}, {"--rope-scaling yarn"});
}

TEST(Context, ScalesWithTheRope) {
  const Args args{"-p", "hello", "-n", "1", "-c", "10000"};
  expect_run_refused(args, kInvalidArgument,
                     {"10000 tokens", "the 4096 the model was trained for"});
  expect_run_refused(joined(args, {"--rope-scale", "2"}), kInvalidArgument,
                     {"10000 tokens", "the 8192 that rope scaling makes of the 4096"});
  EXPECT_EQ(tiny_json(joined(args, {"--rope-scale", "3"}))["rope"]["n_ctx_scaled"], 12288);
  expect_run_refused({"-p", "hello", "-c", "3000", "--rope-scale", "0.5"}, kInvalidArgument,
                     {"the 2048 that rope scaling makes of the 4096"});
}

// A model trained for few positions: without -c nothing goes beyond them, neither prompt nor answer.
TEST(Context, IsNotLeftUnlessAsked) {
  const std::string model = write_tiny_model({.n_ctx_train = 64});
  const auto args = [&](const Args& more) {
    return joined(
        {"run", "-m", model, "-t", "1", "--no-chat", "--json", "--temp", "0", "--ignore-eos"},
        more);
  };
  const std::string ids_65 = [] {
    std::string ids = "1";
    for (int i = 1; i < 65; ++i) {
      ids += ",1";
    }
    return ids;
  }();
  const Args prompt{"run", "-m", model, "-t", "1", "--ids", ids_65, "-n", "1", "--json"};
  expect_refused(run_winnow(prompt), kInvalidArgument,
                 {"65 tokens", "the context 64", "--allow-beyond-context"});
  EXPECT_EQ(json_of(joined(prompt, {"--allow-beyond-context"}))["positions_fed"], 65);
  EXPECT_EQ(json_of(joined(prompt, {"--rope-scale", "2"}))["positions_fed"], 65);

  for (const char* n : {"-1", "200"}) {
    const json answer = json_of(args({"-p", "hello", "-n", n}));
    EXPECT_EQ(answer["stop"], "context");
    EXPECT_EQ(answer["positions_fed"], 64);
  }
  const json asked = json_of(args({"-p", "hello", "-n", "200", "--allow-beyond-context"}));
  EXPECT_EQ(asked["stop"], "length");
  EXPECT_EQ(asked["n_generated"], 200);
  const json scaled = json_of(args({"-p", "hello", "-n", "200", "--rope-scale", "2"}));
  EXPECT_EQ(scaled["stop"], "context");
  EXPECT_EQ(scaled["positions_fed"], 128);
  expect_refused(run_winnow(args({"-p", "hello", "-c", "65"})), kInvalidArgument,
                 {"65 tokens", "the 64 the model was trained for"});
}

}  // namespace
}  // namespace winnow::test
