// The engine on a GPU, beside the engine on the CPU; and what is refused there. Skipped where there is no GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/device_runner.h"
#include "engine/session.h"
#include "kernels/device_step.h"
#include "kernels/kernel_choice.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::EvictWhen;
using engine::PrefillOrder;
using engine::PromptTokens;
using engine::Session;
using policy::Policy;

TEST(NoGpu, IsRefusedWithTheReason) {
  const std::string reason = kernels::why_no_device();
  if (reason.empty()) {
    GTEST_SKIP() << "there is a GPU";
  }
  model::Model model(test::write_tiny_model(), {});
  EXPECT_EQ(test::error_of(ErrorCode::kUnsupported, [&] { engine::load_on_gpu(model); }), reason);
}

// Rows that are nowhere.
struct NoRows final : cache::RemoteRows {
  void grow(int /*layer*/, int /*kv_head*/, int /*n_slots*/, int /*n_more*/) override {}
  void keep(int /*layer*/, int /*kv_head*/, std::span<const int> /*slots*/,
            int /*n_slots*/) override {}
  void copy_beside(cache::RemoteRows& /*source*/) override {}
  void copy_kept(cache::RemoteRows& /*source*/, int /*layer*/, int /*kv_head*/,
                 std::span<const int> /*slots*/) override {}
  cache::Cache::AppendCounts counts(int /*layer*/, int /*kv_head*/) const override { return {}; }
  size_t committed_bytes() const override { return 0; }
};

TEST(NoGpu, RowsOfAnotherMemoryAreRefused) {
  const model::Model model(test::write_tiny_model(), {});
  engine::Engine engine(model, {.n_threads = 1});
  cache::CacheShape shape = engine::cache_shape(model.hyper(), cache::RowType::kF16,
                                                cache::RowType::kF16, Policy::full(), 100);
  shape.is_remote = true;
  engine::Sequence sequence(shape, Policy::full(), std::make_shared<NoRows>());
  const std::vector<int32_t> tokens{1, 2, 3};
  const engine::Feed feed{.sequence = &sequence, .tokens = tokens};
  const std::string refused = test::error_of(ErrorCode::kInvalidArgument, [&] {
    engine.feed({&feed, 1}, {});
  });
  EXPECT_NE(refused.find("memory of a GPU"), std::string::npos) << refused;
  const engine::DecodeInput input{.sequence = &sequence, .token = 1};
  test::error_of(ErrorCode::kInvalidArgument, [&] { engine.decode({&input, 1}); });
  test::error_of(ErrorCode::kInvalidArgument, [&] { engine.fork(sequence, {}); });
  test::error_of(ErrorCode::kUnsupported, [&] { engine.view(sequence); });
}

// Before anything is allocated; without a GPU none is free.
TEST(NoGpu, AsMuchMemoryAsThereIsNotIsRefusedByThePlan) {
  engine::Plan plan;
  plan.gpu_bytes = size_t{1} << 50;
  const std::string refused =
      test::error_of(ErrorCode::kResourceExhausted, [&] { engine::check_fits(plan, 0, 1); });
  EXPECT_NE(refused.find("1024.0 TiB of GPU memory"), std::string::npos) << refused;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = kernels::why_no_device(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }

  static Session session(const model::Model& model, const char* policy, bool is_on_gpu,
                         EvictWhen evict = EvictWhen::kAfterPrompt) {
    return Session(model, Policy::parse(policy),
                   {.evict = evict,
                    .order = {},
                    .engine = {.n_threads = 2, .n_batch = 64, .is_on_gpu = is_on_gpu}});
  }
};

// Heads of 64, which have kernels on the GPU.
test::TinyModelOptions options(const std::string& architecture) {
  test::TinyModelOptions tiny;
  if (architecture == "gemma3") {
    tiny = test::windowed_model();
  }
  tiny.architecture = architecture;
  tiny.head_dim = 64;
  tiny.n_embd = 256;
  tiny.n_heads = 4;
  tiny.n_kv_heads = 2;
  tiny.n_ff = 256;
  tiny.matrix_type = GGML_TYPE_F16;
  return tiny;
}

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  double off = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    off = std::max(off, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return off / largest;
}

std::vector<std::vector<int>> kept(const Session& session) {
  return test::kept_positions(session.sequence()->cache);
}

// Weights and activations are rounded to halves in different places, so that logits are near, and scores of keys, too: sets of rows
// may differ where scores nearly tie.
TEST_F(GpuTest, LogitsAreNearTheCpus) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "phi3", "gemma3"}) {
    model::Model model(test::write_tiny_model(options(architecture)), {});
    engine::load_on_gpu(model);
    Session on_gpu = session(model, "full", true);
    Session on_cpu = session(model, "full", false);
    for (const int n : {150, 7}) {
      const PromptTokens prompt{.document = test::random_tokens(n, model.hyper().n_vocab, 3)};
      const auto expected = on_cpu.read(prompt, {.logits = engine::WantedLogits::kAll});
      const auto logits = on_gpu.read(prompt, {.logits = engine::WantedLogits::kAll});
      ASSERT_EQ(logits.size(), expected.size());
      EXPECT_LT(worst_difference(expected, logits), 2e-2) << architecture;
      const engine::GenerateOptions greedy{
          .n_predict = 20, .ignore_eos = true, .sampling = {.temperature = 0}};
      on_cpu.generate(greedy, {});
      on_gpu.generate(greedy, {});
    }
    EXPECT_EQ(kept(on_gpu), kept(on_cpu)) << architecture;
  }
}

// Scores that are of positions alone do not depend on rounding: the same rows stay, in every order and at every time.
TEST_F(GpuTest, KeepsTheCpusRows) {
  model::Model model(test::write_tiny_model(options("llama")), {});
  engine::load_on_gpu(model);
  for (const char* policy : {"streaming:budget=40", "random:budget=50", "random:budget=50,slack=9",
                             "random+adakv:budget=50"}) {
    for (const EvictWhen evict : {EvictWhen::kAfterPrompt, EvictWhen::kPerChunk}) {
      Session on_gpu = session(model, policy, true, evict);
      Session on_cpu = session(model, policy, false, evict);
      for (Session* const each : {&on_gpu, &on_cpu}) {
        each->read({.document = test::random_tokens(300, model.hyper().n_vocab, 5)}, {});
        each->generate({.n_predict = 90, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
        each->read({.document = test::random_tokens(70, model.hyper().n_vocab, 6)}, {});
      }
      EXPECT_EQ(kept(on_gpu), kept(on_cpu)) << policy;
    }
  }
}

// By what lies on the GPU, or copies of it.
TEST_F(GpuTest, KeepsNearlyTheCpusRowsWhereScoresAreOfKeys) {
  model::Model model(test::write_tiny_model(options("llama")), {});
  engine::load_on_gpu(model);
  for (const char* policy :
       {"knorm:budget=60", "keydiff:budget=60", "snapkv:budget=60", "tova:budget=60",
        "tova:budget=60,per_layer=true", "lagkv:budget=60", "knorm+adakv:budget=60",
        "h2o:budget=60", "h2o:budget=60,observed=true", "expected-attention:budget=60",
        "qfilters@keysvd:budget=60", "snapkv+cake:budget=60", "snapkv+criticalkv:budget=60",
        "knorm+squeeze:budget=60", "knorm+merge:budget=60", "h2o+cam:budget=60",
        "knorm:budget=60,positions=stalled"}) {
    Session on_gpu = session(model, policy, true);
    Session on_cpu = session(model, policy, false);
    for (Session* const each : {&on_gpu, &on_cpu}) {
      each->read({.document = test::random_tokens(400, model.hyper().n_vocab, 5)}, {});
      each->generate({.n_predict = 12, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
    }
    size_t n_rows = 0;
    size_t n_common = 0;
    const auto expected = kept(on_cpu);
    const auto rows = kept(on_gpu);
    for (size_t head = 0; head < rows.size(); ++head) {
      std::vector<int> common;
      std::ranges::set_intersection(rows[head], expected[head], std::back_inserter(common));
      n_rows += expected[head].size();
      n_common += common.size();
    }
    EXPECT_GE(static_cast<double>(n_common), 0.97 * static_cast<double>(n_rows)) << policy;
  }
}

// What the GPU chooses by itself is what the host chooses of the same numbers, to the row.
TEST_F(GpuTest, ChoosesAsTheHostDoes) {
  model::Model model(test::write_tiny_model(options("llama")), {});
  engine::load_on_gpu(model);
  for (const char* policy :
       {"knorm:budget=60", "knorm:budget=60,keep=high", "h2o:budget=60",
        "h2o:budget=60,observed=true", "h2o:budget=60,decay=0.5", "tova:budget=60",
        "tova:budget=60,slack=0", "snapkv:budget=60,obs_window=16",
        "snapkv:budget=60,obs_window=16,pool=avg,kernel=5",
        "snapkv:budget=60,obs_window=16,group=max",
        "snapkv:budget=60,obs_window=16,reduce_first=true",
        "snapkv:budget=60,obs_window=16,force_window=false,slack=0", "knorm+pyramid:budget=60"}) {
    for (const EvictWhen evict : {EvictWhen::kAfterPrompt, EvictWhen::kPerChunk}) {
      std::vector<std::vector<std::vector<int>>> rows;
      for (const auto kernels : {kernels::KernelChoice::kAuto, kernels::KernelChoice::kReference}) {
        kernels::choose_kernels(kernels);
        Session on_gpu = session(model, policy, true, evict);
        on_gpu.read({.document = test::random_tokens(400, model.hyper().n_vocab, 5)}, {});
        on_gpu.generate({.n_predict = 70, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
        on_gpu.read({.document = test::random_tokens(70, model.hyper().n_vocab, 6)}, {});
        rows.push_back(kept(on_gpu));
      }
      kernels::choose_kernels(kernels::KernelChoice::kAuto);
      EXPECT_EQ(rows[0], rows[1]) << policy;
    }
  }
}

// A fork on the GPU goes on as its source does, and one that is cut keeps what the source would.
TEST_F(GpuTest, ForksGoOnAsTheirSource) {
  model::Model model(test::write_tiny_model(options("llama")), {});
  engine::load_on_gpu(model);
  const engine::GenerateOptions greedy{
      .n_predict = 40, .ignore_eos = true, .sampling = {.temperature = 0}};
  for (const char* policy : {"full", "knorm:budget=60", "h2o:budget=60", "snapkv:budget=60",
                             "expected-attention:budget=60", "qfilters@keysvd:budget=60"}) {
    Session source = session(model, policy, true);
    source.read({.document = test::random_tokens(300, model.hyper().n_vocab, 5)}, {});
    const auto copy = source.fork();
    std::vector<float> logits[2];
    const auto generate = [&](Session& session, std::vector<float>& all) {
      session.generate(greedy, {.on_logits = [&all](const std::vector<float>& more) {
                         all.insert(all.end(), more.begin(), more.end());
                       }});
    };
    generate(*copy, logits[0]);
    generate(source, logits[1]);
    EXPECT_TRUE(test::same_bits(logits[0], logits[1])) << policy;
    EXPECT_EQ(kept(*copy), kept(source)) << policy;
  }
  Session whole = session(model, "full", true);
  whole.read({.document = test::random_tokens(300, model.hyper().n_vocab, 5)}, {});
  const auto cut = whole.fork(Policy::parse("knorm:budget=60"));
  Session expected = session(model, "knorm:budget=60", true);
  expected.read({.document = test::random_tokens(300, model.hyper().n_vocab, 5)}, {});
  EXPECT_EQ(kept(*cut), kept(expected));
}

// Nothing is left to the host where kernels are required.
TEST_F(GpuTest, RequiredKernelsAreThereOrRefused) {
  model::Model model(test::write_tiny_model(options("llama")), {});
  engine::load_on_gpu(model);
  kernels::choose_kernels(kernels::KernelChoice::kRequire);
  for (const char* policy :
       {"full", "streaming:budget=60", "knorm:budget=60", "snapkv:budget=60"}) {
    session(model, policy, true);
  }
  for (const char* policy : {"keydiff:budget=60", "expected-attention:budget=60",
                             "knorm+adakv:budget=60", "knorm+squeeze:budget=60"}) {
    const std::string refused =
        test::error_of(ErrorCode::kUnsupported, [&] { session(model, policy, true); });
    EXPECT_NE(refused.find("--kernels require"), std::string::npos) << refused;
  }
  kernels::choose_kernels(kernels::KernelChoice::kAuto);
}

TEST_F(GpuTest, TheSameAgain) {
  model::Model model(test::write_tiny_model(options("llama")), {});
  engine::load_on_gpu(model);
  std::vector<float> logits[2];
  for (auto& each : logits) {
    Session on_gpu = session(model, "knorm:budget=60", true);
    each = on_gpu.read({.document = test::random_tokens(500, model.hyper().n_vocab, 5)}, {});
    on_gpu.generate({.n_predict = 40, .ignore_eos = true, .sampling = {.temperature = 0}},
                    {.on_logits = [&each](const std::vector<float>& more) {
                      each.insert(each.end(), more.begin(), more.end());
                    }});
  }
  EXPECT_TRUE(test::same_bits(logits[0], logits[1]));
}

TEST_F(GpuTest, RefusesWhatIsNotThereYet) {
  model::Model model(test::write_tiny_model(options("llama")), {});
  engine::load_on_gpu(model);
  const char* const policy = "knorm:budget=60,positions=contiguous";
  const std::string refused =
      test::error_of(ErrorCode::kUnsupported, [&] { session(model, policy, true); });
  EXPECT_NE(refused.find(policy), std::string::npos) << refused;
  model::Model small(test::write_tiny_model(), {});  // heads of 16
  engine::load_on_gpu(small);
  Session of_small = session(small, "full", true);
  const std::string error = test::error_of(ErrorCode::kUnsupported, [&] { of_small.reserve(100); });
  EXPECT_NE(error.find("heads of 16"), std::string::npos) << error;
}

}  // namespace
}  // namespace winnow
