// A policy whose generated tokens read pages of rows: like any other where it reads all, alike wherever it goes on from.

#include <gtest/gtest.h>

#include "engine/sequence.h"
#include "engine/session.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::Sequence;
using model::Model;

class PageReadsOfModels : public testing::Test {
 protected:
  Model model_{test::write_tiny_model(test::windowed_model()), {}};
  std::vector<int32_t> prompt_ = test::random_tokens(300, model_.hyper().n_vocab);
  std::vector<int32_t> next_ = test::random_tokens(40, model_.hyper().n_vocab, 2);

  std::vector<float> decoded(const char* policy, int n_threads = 1) const {
    Engine engine(model_, {.n_threads = n_threads, .n_batch = 128});
    Sequence sequence = test::make_sequence(model_, policy);
    test::feed_all(engine, sequence, prompt_);
    return test::decode_all(engine, sequence, next_);
  }
};

TEST_F(PageReadsOfModels, ReadingAllPagesIsReadingAllRows) {
  const auto all = decoded("knorm:budget=96,slack=0");
  EXPECT_TRUE(test::same_bits(all, decoded("knorm+quest:budget=96,pages=64,slack=0")));
  EXPECT_TRUE(
      test::same_bits(all, decoded("knorm+quest:budget=96,pages=1,whole_layers=99,slack=0")));
  const auto some = decoded("knorm+quest:budget=96,pages=2,page_rows=8,whole_layers=0");
  EXPECT_FALSE(test::same_bits(all, some));
  EXPECT_TRUE(test::same_bits(
      some, decoded("knorm+quest:budget=96,pages=2,page_rows=8,whole_layers=0", 3)));
}

TEST_F(PageReadsOfModels, RocketkvReadsAllWhereAllIsNoMoreThanItReads) {
  const auto all = decoded("snapkv:budget=96,slack=0");
  EXPECT_TRUE(test::same_bits(all, decoded("snapkv+rocketkv:budget=96,read=96,slack=0")));
  EXPECT_FALSE(test::same_bits(all, decoded("snapkv+rocketkv:budget=96,read=24,slack=0")));
}

// Which pages there are does not depend on the slots that rows lie in.
TEST_F(PageReadsOfModels, AForkReadsTheSamePages) {
  const char* const policy = "knorm+quest:budget=96,pages=3,page_rows=8,whole_layers=0,slack=0";
  Engine engine(model_, {.n_threads = 1, .n_batch = 128});
  Sequence sequence = test::make_sequence(model_, policy);
  test::feed_all(engine, sequence, prompt_);
  test::decode_all(engine, sequence, next_);
  Sequence fork = engine::fork(sequence);
  EXPECT_TRUE(test::same_bits(test::decode_all(engine, fork, next_),
                              test::decode_all(engine, sequence, next_)));
}

TEST(PageReadsOfPolicies, ATrimmedSequenceReadsOtherRowsAtTheSamePositions) {
  const Model model(test::write_tiny_model(), {});
  const auto prompt = test::random_tokens(300, model.hyper().n_vocab);
  const auto next = test::random_tokens(40, model.hyper().n_vocab, 2);
  Engine engine(model, {.n_threads = 1, .n_batch = 128});
  Sequence sequence =
      test::make_sequence(model, "streaming+quest:budget=999,pages=3,page_rows=8,whole_layers=0");
  test::feed_all(engine, sequence, prompt);
  const auto once = test::decode_all(engine, sequence, next);
  engine::trim(sequence, 300);
  test::decode_all(engine, sequence, test::random_tokens(40, model.hyper().n_vocab, 3));
  engine::trim(sequence, 300);
  EXPECT_TRUE(test::same_bits(once, test::decode_all(engine, sequence, next)));
}

TEST_F(PageReadsOfModels, BoundsAreCountedAndForeseen) {
  Engine engine(model_, {.n_threads = 1, .n_batch = 128});
  Sequence sequence = test::make_sequence(
      model_, "streaming+quest:budget=999,pages=2,page_rows=8,whole_layers=0", 340);
  test::feed_all(engine, sequence, prompt_);
  EXPECT_EQ(sequence.policy_bytes(), 0U);
  test::decode_all(engine, sequence, next_);
  EXPECT_GT(sequence.policy_bytes(), 0U);
  EXPECT_LE(sequence.policy_bytes(),
            engine::policy_bytes(model_.hyper(), sequence.cache.shape(), sequence.policy));
  EXPECT_LT(sequence.pages.tally().share(), 0.1);
}

TEST(PageReadsOfPolicies, AreNamedByTheSpec) {
  const auto policy = policy::Policy::parse("snapkv+quest:budget=512,pages=8");
  EXPECT_EQ(policy.page_rule(), (kernels::PageRule{.n_pages = 8}));
  EXPECT_TRUE(policy.spec().starts_with("snapkv+quest:"));
  EXPECT_FALSE(policy::Policy::parse("quest:budget=512").page_rule().is_wanted());
  EXPECT_TRUE(policy::Policy::parse("quest+quest:budget=512").page_rule().is_wanted());
  const auto refused = [](const char* spec) {
    return test::error_of(ErrorCode::kInvalidArgument, [&] { policy::Policy::parse(spec); });
  };
  EXPECT_NE(refused("knorm+quest:budget=64,positions=contiguous").find("as they are stored"),
            std::string::npos);
  EXPECT_NE(refused("knorm+quest+quest:budget=64").find("given twice"), std::string::npos);
  EXPECT_NE(refused("knorm+quest:budget=64,pages=0").find("pages"), std::string::npos);
  EXPECT_NE(refused("full+quest").find("quest"), std::string::npos);
}

}  // namespace
}  // namespace winnow
