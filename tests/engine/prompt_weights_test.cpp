// Weights expanded for prompts: prompts get the bits of expanded weights, generated tokens those of the file's.

#include <gtest/gtest.h>

#include <vector>

#include "engine/batch.h"
#include "engine/engine.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::DecodeInput;
using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;
using model::WeightType;
using test::same_bits;

using Tokens = std::vector<int32_t>;

// The embeddings are bf16 in the file, so that expanding to bf16 is about the layers' matrices alone.
std::string write_model(const std::string& architecture, bool tied) {
  test::TinyModelOptions options;
  options.architecture = architecture;
  options.tied = tied;
  options.matrix_type = GGML_TYPE_Q8_0;
  options.embedding_type = GGML_TYPE_BF16;
  return test::write_tiny_model(options);
}

class PromptWeights : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<float> read(const Model& model, Sequence& sequence, PrefillOrder order,
                          int n_batch = 32) const {
    Engine engine(model, {.n_threads = 1, .n_batch = n_batch});
    return test::feed_all(engine, sequence, prompt_, order);
  }
  std::vector<float> decode(const Model& model, Sequence& sequence) const {
    Engine engine(model, {.n_threads = 1});
    return test::decode_all(engine, sequence, next_);
  }

  std::string path_ = write_model(GetParam(), /*tied=*/GetParam() == std::string("gemma3"));
  Model file_{path_, {}};
  Model expanded_{path_, {.weights = {WeightType::kBf16}}};
  Model both_{path_, {.weights = {WeightType::kBf16, /*is_for_prompts=*/true}}};
  Tokens prompt_ = test::random_tokens(75, file_.hyper().n_vocab, 1);
  Tokens next_ = test::random_tokens(20, file_.hyper().n_vocab, 2);
};

TEST_P(PromptWeights, GivePromptsTheBitsOfExpandedWeights) {
  for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
    for (const int n_batch : {5, 32, 512}) {
      Sequence a = test::make_sequence(both_);
      Sequence b = test::make_sequence(expanded_);
      Sequence c = test::make_sequence(file_);
      const std::vector<float> logits = read(both_, a, order, n_batch);
      EXPECT_TRUE(same_bits(logits, read(expanded_, b, order, n_batch)));
      EXPECT_FALSE(same_bits(logits, read(file_, c, order, n_batch)));
    }
  }
}

TEST_P(PromptWeights, GiveGeneratedTokensTheBitsOfTheFile) {
  for (const char* policy : {"full", "knorm:budget=40", "streaming:budget=30,slack=7"}) {
    Sequence a = test::make_sequence(both_, policy);
    Sequence b = test::make_sequence(expanded_, policy);
    read(both_, a, PrefillOrder::kLayerMajor);
    read(expanded_, b, PrefillOrder::kLayerMajor);
    EXPECT_TRUE(same_bits(decode(both_, a), decode(file_, b))) << policy;
    EXPECT_EQ(test::kept_positions(a.cache), test::kept_positions(b.cache)) << policy;
  }
}

TEST_P(PromptWeights, AreChosenByTheClassOfAStep) {
  // Seven sequences that decode together are of the file's class, eight of the prompt's, and so is one beside a prompt.
  for (const int n_decoding : {7, 8}) {
    const Model& like = n_decoding < engine::kMinPromptRows ? file_ : expanded_;
    std::vector<Sequence> ours;
    std::vector<Sequence> theirs;
    for (int i = 0; i < n_decoding; ++i) {
      read(both_, ours.emplace_back(test::make_sequence(both_)), PrefillOrder::kChunkMajor);
      read(expanded_, theirs.emplace_back(test::make_sequence(expanded_)),
           PrefillOrder::kChunkMajor);
    }
    const auto step = [&](const Model& model, std::vector<Sequence>& sequences) {
      std::vector<DecodeInput> inputs;
      for (size_t i = 0; i < sequences.size(); ++i) {
        inputs.push_back({&sequences[i], next_[i]});
      }
      Engine engine(model, {.n_threads = 1});
      return engine.decode(inputs);
    };
    EXPECT_TRUE(same_bits(step(both_, ours), step(like, theirs))) << n_decoding;
  }
}

TEST_P(PromptWeights, HoldInBatchesForksAndTrims) {
  Engine engine(both_, {.n_threads = 1, .n_batch = 32});
  Engine like(expanded_, {.n_threads = 1, .n_batch = 32});
  // A step of one prompt and one generated token.
  std::vector<float> logits[2];
  Sequence first[2] = {test::make_sequence(both_), test::make_sequence(expanded_)};
  Sequence second[2] = {test::make_sequence(both_), test::make_sequence(expanded_)};
  Engine* const engines[2] = {&engine, &like};
  for (int i = 0; i < 2; ++i) {
    test::feed_all(*engines[i], first[i], prompt_);
    const engine::StepInput inputs[] = {
        {.sequence = &first[i], .tokens = std::span(next_).first(1)},
        {.sequence = &second[i],
         .tokens = std::span(prompt_).first(3),
         .is_prompt = true,
         .wants_logits = true}};
    engines[i]->step(inputs, logits[i]);
  }
  EXPECT_TRUE(same_bits(logits[0], logits[1]));
  // A batch reads a prompt as the engine does.
  engine::Batch batch(engine, {.n_sequences = 2, .n_tokens = 20});
  Sequence in_batch = test::make_sequence(both_);
  batch.add(in_batch, prompt_, engine::PromptEviction::kAfter);
  std::vector<float> last;
  while (batch.has_work()) {
    for (const auto& next : batch.step()) {
      last.assign(next.logits.begin(), next.logits.end());
    }
  }
  Sequence alone = test::make_sequence(both_);
  const std::vector<float> all = test::feed_all(engine, alone, prompt_);
  EXPECT_TRUE(same_bits(last, std::span(all).last(last.size())));
  // A fork goes on like its origin, and so does what was trimmed back.
  Sequence fork = engine.fork(alone, {});
  const std::vector<float> decoded = test::decode_all(engine, alone, next_);
  EXPECT_TRUE(same_bits(decoded, test::decode_all(engine, fork, next_)));
  engine::trim(fork, static_cast<int>(prompt_.size()));
  EXPECT_TRUE(same_bits(decoded, test::decode_all(engine, fork, next_)));
}

TEST_P(PromptWeights, MayComeAfterLoading) {
  Model later(path_, {});
  EXPECT_EQ(later.expanded_bytes(), 0U);
  EXPECT_EQ(later.expand_for_prompts(WeightType::kBf16, 2), 0U);
  EXPECT_EQ(later.expanded_bytes(), both_.expanded_bytes());
  EXPECT_EQ(later.expanded_bytes(),
            model::expansion_bytes(later.file(), {WeightType::kBf16, /*is_for_prompts=*/true}));
  EXPECT_STREQ(model::weight_option_name(later.weight_option()), "prompt-bf16");
  Sequence a = test::make_sequence(later);
  Sequence b = test::make_sequence(both_);
  EXPECT_TRUE(same_bits(read(later, a, PrefillOrder::kLayerMajor),
                        read(both_, b, PrefillOrder::kLayerMajor)));
  EXPECT_TRUE(same_bits(decode(later, a), decode(both_, b)));
}

INSTANTIATE_TEST_SUITE_P(Families, PromptWeights,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3", "phi3"));

}  // namespace
}  // namespace winnow
