// Bytes and operations, beside counts by hand.

#include "engine/work.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/tiny_model.h"

namespace winnow::engine {
namespace {

using model::Model;
using test::TinyModelOptions;

Sequence sequence_of(const Model& model, int n_tokens) {
  const auto full = policy::Policy::parse("full");
  Sequence sequence(
      cache_shape(model.hyper(), cache::RowType::kF16, cache::RowType::kF16, full, 200), full);
  if (n_tokens > 0) {
    Engine engine(model, {});
    const std::vector<Token> tokens(static_cast<size_t>(n_tokens), 1);
    const Feed feed{.sequence = &sequence, .tokens = tokens};
    engine.feed({&feed, 1}, {.progress = {}});
  }
  return sequence;
}

// Two layers of 64: q and output 64x64, k and v 64x32, three feed-forward matrices 64x96.
constexpr int64_t kLayerWeights = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96);

TEST(Work, CountsParameters) {
  const Model model(test::write_tiny_model(), {});
  const int64_t n_embeddings = int64_t{64} * model.hyper().n_vocab;
  EXPECT_EQ(n_params(model), n_embeddings + 64 + kLayerWeights + 2 * 2 * 64);
  EXPECT_EQ(tensor_bytes(model), static_cast<size_t>(n_params(model)) * sizeof(float));
}

TEST(Work, AStepReadsNoEmbeddingsThatAreNoOutput) {
  TinyModelOptions options;
  const Model tied(test::write_tiny_model(options), {});
  EXPECT_EQ(step_weight_bytes(tied), tensor_bytes(tied));
  options.tied = false;
  const Model untied(test::write_tiny_model(options), {});
  EXPECT_EQ(step_weight_bytes(untied), step_weight_bytes(tied));
  EXPECT_GT(tensor_bytes(untied), tensor_bytes(tied));
}

TEST(Work, AStepReadsExpandedWeights) {
  const std::string path = test::write_tiny_model({.matrix_type = GGML_TYPE_F16});
  const Model file(path, {});
  const Model expanded(path, {.weights = {model::WeightType::kF32}});
  const auto n_matrices = static_cast<size_t>(kLayerWeights + int64_t{64} * file.hyper().n_vocab);
  EXPECT_EQ(step_weight_bytes(expanded) - step_weight_bytes(file), 2 * n_matrices);
}

TEST(Work, ATokenReadsItsOwnRowToo) {
  const Model model(test::write_tiny_model(), {});
  EXPECT_EQ(attended_bytes(sequence_of(model, 0).cache), 4U * 68);
  EXPECT_EQ(attended_bytes(sequence_of(model, 10).cache), 4U * 68 * 11);
}

TEST(Work, CountsAPromptsOperations) {
  const Model model(test::write_tiny_model(), {});
  const double output = 2.0 * 64 * model.hyper().n_vocab;
  // Two layers of four heads of 16; three tokens attend to 1 + 2 + 3 rows.
  EXPECT_EQ(prompt_operations(model, sequence_of(model, 0).cache, 3),
            2.0 * kLayerWeights * 3 + 4.0 * 16 * (2 * 4 * 6) + output);
  EXPECT_EQ(prompt_operations(model, sequence_of(model, 10).cache, 3),
            2.0 * kLayerWeights * 3 + 4.0 * 16 * (2 * 4 * (11 + 12 + 13)) + output);
}

TEST(Work, AWindowLimitsWhatIsAttendedTo) {
  TinyModelOptions options;
  options.architecture = "gemma3";
  options.sentencepiece = true;
  options.n_layers = 6;  // one of which sees everything
  const auto operations = [&options](int swa_window) {
    options.swa_window = swa_window;
    const Model model(test::write_tiny_model(options), {});
    return prompt_operations(model, sequence_of(model, 0).cache, 10);
  };
  // Nine tokens and more would see one row less each, of 5 layers with 4 heads of 16.
  EXPECT_EQ(operations(100) - operations(9), 4.0 * 16 * (5 * 4 * 1));
}

}  // namespace
}  // namespace winnow::engine
