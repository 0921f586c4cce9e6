// A batch: neighbours change nothing, whoever joins and leaves when.

#include "engine/batch.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Batch;
using engine::BatchLimits;
using engine::Engine;
using engine::PromptEviction;
using engine::Sequence;
using model::Model;

using Tokens = std::vector<int32_t>;

constexpr int kBatch = 32;

// A sequence's life, whatever happens around it: the prompt, then tokens that are given.
struct Life {
  const char* policy;
  PromptEviction eviction;
  Tokens prompt;
  Tokens next;
};

// What came of it. Rows that a window has left behind go in bunches, and which are still there is not compared.
struct Outcome {
  std::vector<std::vector<float>> logits;  // after the prompt, then after every token
  std::vector<std::vector<int>> kept;
  int64_t n_evicted = 0;
  int64_t n_evictions = 0;
  bool evicted_during_prompt = false;

  bool operator==(const Outcome& other) const {
    return std::equal(logits.begin(), logits.end(), other.logits.begin(), other.logits.end(),
                      test::same_bits) &&
           kept == other.kept && n_evicted == other.n_evicted && n_evictions == other.n_evictions &&
           evicted_during_prompt == other.evicted_during_prompt;
  }
};

void finish(const Sequence& sequence, Outcome& outcome) {
  const cache::CacheShape& shape = sequence.cache.shape();
  outcome.kept = test::kept_positions(sequence.cache);
  for (size_t head = 0; head < outcome.kept.size(); ++head) {
    const int swa_window = shape.swa_window(static_cast<int>(head) / shape.n_kv_heads);
    std::erase_if(outcome.kept[head], [&](int pos) {
      return swa_window > 0 && pos <= sequence.positions_fed - swa_window;
    });
  }
  outcome.n_evicted = sequence.cache.rows_evicted();
  outcome.n_evictions = sequence.evictions.count;
  outcome.evicted_during_prompt = sequence.evicted_during_prompt;
}

// A life outside of any batch. With a companion, tokens are decoded beside a second sequence: in another class of matrix
// multiply than alone.
Outcome live_apart(const Model& model, const Life& life, bool has_companion) {
  Engine engine(model, {.n_threads = 1, .n_batch = kBatch});
  Sequence sequence = test::make_sequence(model, life.policy, 300);
  Sequence companion = test::make_sequence(model, "full", 300);
  Outcome outcome;
  const engine::Feed feed{.sequence = &sequence, .tokens = life.prompt};
  outcome.logits.push_back(engine.feed({&feed, 1}, {.eviction = life.eviction, .progress = {}})[0]);
  const auto n_vocab = static_cast<std::ptrdiff_t>(model.hyper().n_vocab);
  for (const int32_t token : life.next) {
    const engine::DecodeInput inputs[] = {{&sequence, token}, {&companion, 1}};
    const auto logits = engine.decode(std::span(inputs).first(has_companion ? 2 : 1));
    outcome.logits.emplace_back(logits.begin(), logits.begin() + n_vocab);
  }
  finish(sequence, outcome);
  return outcome;
}

Life random_life(std::mt19937& random, int n_vocab) {
  constexpr const char* kPolicies[] = {"full",
                                       "knorm:budget=30",
                                       "knorm:budget=24,slack=5,keep=high",
                                       "streaming:budget=20",
                                       "random:budget=25,slack=3",
                                       "knorm+adakv:budget=22",
                                       "knorm+pyramid+adakv:budget=24,slack=2",
                                       "random+pool:budget=21"};
  constexpr PromptEviction kEvictions[] = {PromptEviction::kAfter, PromptEviction::kPerChunk,
                                           PromptEviction::kNever};
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  return {.policy = kPolicies[pick(0, static_cast<int>(std::size(kPolicies)) - 1)],
          .eviction = kEvictions[pick(0, 2)],
          .prompt = test::random_tokens(pick(1, 110), n_vocab, random()),
          .next = test::random_tokens(pick(0, 25), n_vocab, random())};
}

// Lives together: joining when there is room, pausing, some leaving early and never coming back.
class Household {
 public:
  Household(const Model& model, uint32_t seed, int n_threads)
      : model_(model),
        random_(seed),
        engine_(model, {.n_threads = n_threads, .n_batch = kBatch}),
        limits_{.n_sequences = pick(2, 6), .n_tokens = pick(6, kBatch)},
        batch_(engine_, limits_) {}

  // A sequence that decodes in every step.
  void take_companion() {
    companion_.emplace(test::make_sequence(model_, "full", 2000));
    batch_.add(*companion_, Tokens{1, 2, 3});
    batch_.step();
  }

  std::vector<Outcome> live(const std::vector<Life>& lives) {
    std::vector<Outcome> outcomes(lives.size());
    size_t n_joined = 0;
    size_t n_over = 0;
    while (n_over < lives.size()) {
      while (n_joined < lives.size() && batch_.n_sequences() < limits_.n_sequences && chance(0.4)) {
        const Life& life = lives[n_joined];
        Sequence& sequence = sequences_.emplace_back(test::make_sequence(model_, life.policy, 300));
        index_[&sequence] = n_joined++;
        batch_.add(sequence, life.prompt, life.eviction);
      }
      if (batch_.n_sequences() < limits_.n_sequences && chance(0.1)) {  // a visitor
        visitors_.push_back(&sequences_.emplace_back(test::make_sequence(model_)));
        batch_.add(*visitors_.back(), test::random_tokens(pick(1, 40), 100, random_()));
      }
      if (!visitors_.empty() && chance(0.3)) {  // leaves, whatever it was doing
        batch_.remove(*visitors_.back());
        visitors_.pop_back();
      }
      for (Sequence* const visitor : visitors_) {
        if (is_ready_[visitor] && chance(0.8)) {
          batch_.push(*visitor, pick(0, 99));
          is_ready_[visitor] = false;
        }
      }
      if (companion_) {
        batch_.push(*companion_, 1);
      }
      for (Sequence& sequence : sequences_) {
        const auto found = index_.find(&sequence);
        if (found == index_.end() || !is_ready_[&sequence] || chance(0.2)) {
          continue;
        }
        const Life& life = lives[found->second];
        Outcome& outcome = outcomes[found->second];
        const size_t n_decoded = outcome.logits.size() - 1;
        if (n_decoded < life.next.size()) {
          batch_.push(sequence, life.next[n_decoded]);
          is_ready_[&sequence] = false;
        } else {
          batch_.remove(sequence);
          finish(sequence, outcome);
          index_.erase(found);
          ++n_over;
        }
      }
      for (const Batch::NextLogits& next : batch_.step()) {
        is_ready_[next.sequence] = true;
        if (const auto found = index_.find(next.sequence); found != index_.end()) {
          outcomes[found->second].logits.emplace_back(next.logits.begin(), next.logits.end());
        }
      }
    }
    return outcomes;
  }

 private:
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool chance(double of) { return std::bernoulli_distribution(of)(random_); }

  const Model& model_;
  std::mt19937 random_;
  Engine engine_;
  BatchLimits limits_;
  Batch batch_;
  std::optional<Sequence> companion_;
  std::deque<Sequence> sequences_;  // they stay where they are
  std::vector<Sequence*> visitors_;
  std::map<const Sequence*, size_t> index_;  // of lives that are not over
  std::map<const Sequence*, bool> is_ready_;
};

void expect_neighbours_change_nothing(const test::TinyModelOptions& options, int n_schedules) {
  const Model model(test::write_tiny_model(options), {});
  // Types without classes give the same bits for any number of neighbours, none included.
  const bool has_companion = options.matrix_type == GGML_TYPE_F32;
  std::mt19937 random(11);
  std::vector<Life> lives;
  std::vector<Outcome> expected;
  for (int i = 0; i < 12; ++i) {
    lives.push_back(random_life(random, model.hyper().n_vocab));
    expected.push_back(live_apart(model, lives.back(), has_companion));
  }
  for (int i = 0; i < n_schedules; ++i) {
    Household household(model, static_cast<uint32_t>(i), i % 4 == 3 ? 2 : 1);
    if (has_companion) {
      household.take_companion();
    }
    const std::vector<Outcome> outcomes = household.live(lives);
    for (size_t life = 0; life < lives.size(); ++life) {
      EXPECT_TRUE(outcomes[life] == expected[life])
          << "schedule " << i << ", life " << life << ", " << lives[life].policy;
    }
  }
}

TEST(Batch, NeighboursThatComeAndGoChangeNothing) {
  expect_neighbours_change_nothing({}, 12);
  expect_neighbours_change_nothing({.architecture = "qwen2", .head_dim = 20}, 4);
  expect_neighbours_change_nothing(test::windowed_model(), 6);
}

TEST(Batch, NeighboursChangeNothingForTypesWithoutClassesEvenBesideNone) {
  expect_neighbours_change_nothing({.matrix_type = GGML_TYPE_Q8_0}, 8);
}

// One prefill, many policies: forks decode side by side.
TEST(Batch, ForksUnderSeveralPoliciesDecodeSideBySide) {
  const Model model(test::write_tiny_model({.matrix_type = GGML_TYPE_Q8_0}), {});
  Engine engine(model, {.n_threads = 1, .n_batch = kBatch});
  const auto n_vocab = static_cast<size_t>(model.hyper().n_vocab);
  Sequence full = test::make_sequence(model, "full", 300);
  test::feed_all(engine, full, test::random_tokens(120, model.hyper().n_vocab));
  const Tokens next = test::random_tokens(20, model.hyper().n_vocab, 2);
  const char* const policies[] = {"full", "knorm:budget=30", "streaming:budget=30,slack=4",
                                  "random:budget=30"};
  std::deque<Sequence> forks;
  std::vector<std::vector<float>> expected;
  Batch batch(engine, {.n_sequences = 4, .n_tokens = 8});
  for (const char* policy : policies) {
    Sequence apart = engine.fork(full, {.policy = policy::Policy::parse(policy)});
    expected.push_back(test::decode_all(engine, apart, next));
    forks.push_back(engine.fork(full, {.policy = policy::Policy::parse(policy)}));
    batch.add(forks.back());
  }
  EXPECT_FALSE(batch.has_work());
  for (size_t i = 0; i < next.size(); ++i) {
    for (Sequence& fork : forks) {
      batch.push(fork, next[i]);
    }
    EXPECT_TRUE(batch.has_work());
    const auto logits = batch.step();
    ASSERT_EQ(logits.size(), forks.size());
    for (size_t fork = 0; fork < forks.size(); ++fork) {
      EXPECT_EQ(logits[fork].sequence, &forks[fork]);
      EXPECT_TRUE(test::same_bits(logits[fork].logits,
                                  std::span(expected[fork]).subspan(i * n_vocab, n_vocab)));
    }
  }
  EXPECT_EQ(full.positions_fed, 120);
}

TEST(Batch, PromptsAreReadInTheRoomThatDecodingLeaves) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = kBatch});
  Sequence a = test::make_sequence(model);
  Sequence b = test::make_sequence(model);
  Sequence c = test::make_sequence(model);
  Batch batch(engine, {.n_sequences = 3, .n_tokens = 10});
  EXPECT_FALSE(batch.has_work());
  EXPECT_TRUE(batch.step().empty());
  batch.add(a, test::random_tokens(4, 100));
  batch.add(b, test::random_tokens(12, 100));
  EXPECT_TRUE(batch.has_work());
  auto next = batch.step();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].sequence, &a);
  EXPECT_EQ(b.positions_fed, 6);
  batch.add(c, test::random_tokens(9, 100));
  batch.push(a, 5);
  next = batch.step();
  ASSERT_EQ(next.size(), 2U);
  EXPECT_EQ(next[0].sequence, &a);
  EXPECT_EQ(next[1].sequence, &b);
  EXPECT_EQ(a.positions_fed, 5);
  EXPECT_EQ(b.positions_fed, 12);
  EXPECT_EQ(c.positions_fed, 3);
  next = batch.step();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].sequence, &c);
  EXPECT_FALSE(batch.has_work());
  EXPECT_TRUE(batch.step().empty());  // all wait for tokens
  EXPECT_EQ(batch.n_sequences(), 3);
}

}  // namespace
}  // namespace winnow
