// A batch: neighbours change nothing, whoever joins and leaves when; and what is refused harms nobody.

#include "engine/batch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <random>

#include "support/error_of.h"
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
using test::error_of;

using Tokens = std::vector<int32_t>;

constexpr int kBatch = 32;
constexpr int kWindow = 40;

test::TinyModelOptions windowed() {
  return {.architecture = "gemma3", .n_layers = 7, .head_dim = 32, .swa_window = kWindow};
}

// A sequence's life, whatever happens around it: the prompt, then tokens that are given.
struct Life {
  const char* policy;
  PromptEviction eviction;
  Tokens prompt;
  Tokens next;
};

// What came of it. Rows that a window has left behind go in bunches, and which are still there is nobody's business.
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
  constexpr const char* kPolicies[] = {"full", "knorm:budget=30",
                                       "knorm:budget=24,slack=5,keep=high", "streaming:budget=20",
                                       "random:budget=25,slack=3"};
  constexpr PromptEviction kEvictions[] = {PromptEviction::kAfter, PromptEviction::kPerChunk,
                                           PromptEviction::kNever};
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  return {.policy = kPolicies[pick(0, 4)],
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
  expect_neighbours_change_nothing(windowed(), 6);
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

// Two sequences, one decoding and one reading, and something that happens beside them before the given step.
class BatchBorders : public ::testing::Test {
 protected:
  struct Run {
    Engine engine;
    Sequence decoding;
    Sequence reading;
    Batch batch{engine, {.n_sequences = 3, .n_tokens = 8}};
  };

  // All logits of the two; `happens` must leave them in the batch.
  std::vector<float> logits_when(const std::function<void(Run&)>& happens) {
    Run run{.engine = Engine(model_, {.n_threads = 1, .n_batch = kBatch}),
            .decoding = test::make_sequence(model_, "knorm:budget=20", 100),
            .reading = test::make_sequence(model_, "streaming:budget=16", 100)};
    run.batch.add(run.decoding, test::random_tokens(20, n_vocab_, 2));
    for (int i = 0; i < 3; ++i) {
      run.batch.step();
    }
    run.batch.add(run.reading, test::random_tokens(24, n_vocab_, 3));
    std::vector<float> all;
    for (int i = 0; i < 12; ++i) {
      run.batch.push(run.decoding, i + 1);
      if (run.reading.positions_fed >= 24) {
        run.batch.push(run.reading, i + 2);
      }
      if (i == 2) {
        EXPECT_GT(run.reading.positions_fed, 0);
        EXPECT_LT(run.reading.positions_fed, 24);
        happens(run);
      }
      for (const Batch::NextLogits& next : run.batch.step()) {
        if (next.sequence == &run.decoding || next.sequence == &run.reading) {
          all.insert(all.end(), next.logits.begin(), next.logits.end());
        }
      }
    }
    return all;
  }

  // What happens is refused with a message that has `part`, and harms nobody.
  void expect_refused(const std::string& part, const std::function<void(Run&)>& happens) {
    const std::vector<float> logits = logits_when([&](Run& run) {
      const std::string message = error_of(ErrorCode::kInvalidArgument, [&] { happens(run); });
      EXPECT_NE(message.find(part), std::string::npos) << message;
    });
    EXPECT_TRUE(test::same_bits(logits, undisturbed()));
  }

  const std::vector<float>& undisturbed() {
    if (undisturbed_.empty()) {
      undisturbed_ = logits_when([](Run&) {});
    }
    return undisturbed_;
  }

  Model model_{test::write_tiny_model(), {}};
  int n_vocab_ = model_.hyper().n_vocab;
  std::vector<float> undisturbed_;
};

TEST_F(BatchBorders, ASequenceAddedTwiceIsRefused) {
  expect_refused("in the batch already", [](Run& run) { run.batch.add(run.decoding); });
  expect_refused("in the batch already", [](Run& run) {
    run.batch.add(run.reading, Tokens{1, 2});
  });
}

TEST_F(BatchBorders, ASequenceMayLeaveWhileItIsReadOrDecoded) {
  for (const int n_steps : {0, 1, 2, 5}) {  // reads 1 … 8 tokens a step
    Sequence third = test::make_sequence(model_, "knorm:budget=10", 100);
    Engine apart(model_, {.n_threads = 1, .n_batch = kBatch});
    Tokens prompt = test::random_tokens(12, n_vocab_, 7);
    const auto logits = logits_when([&](Run& run) {
      Batch& batch = run.batch;
      batch.remove(run.reading);  // the two others: one waits for its token, one is new
      batch.remove(run.decoding);
      batch.add(third, prompt);
      for (int i = 0; i < n_steps; ++i) {
        if (third.positions_fed >= 12) {
          batch.push(third, i);
        }
        batch.step();
      }
      if (n_steps == 5) {
        batch.push(third, 1);  // and is not decoded
      }
      batch.remove(third);
      EXPECT_FALSE(batch.contains(third));
      // Back with what was left to do.
      const Tokens rest = test::random_tokens(24, n_vocab_, 3);
      batch.add(run.decoding);
      batch.push(run.decoding, 3);
      batch.add(run.reading,
                std::span(rest).subspan(static_cast<size_t>(run.reading.positions_fed)));
    });
    EXPECT_TRUE(test::same_bits(logits, undisturbed()));
    // The one that left has the rows of what it read, and goes on elsewhere.
    EXPECT_TRUE(third.is_usable);
    const int n_read = std::min(third.positions_fed, 12);
    EXPECT_EQ(third.positions_fed, n_steps < 2 ? 8 * n_steps : 12 + n_steps - 2);
    Sequence expected = test::make_sequence(model_, "knorm:budget=10", 100);
    Tokens decoded;
    for (int i = 12; i < third.positions_fed; ++i) {
      decoded.push_back(i - 12 + 2);
    }
    const engine::Feed feed{&expected, std::span(prompt).first(static_cast<size_t>(n_read))};
    if (n_read > 0) {
      apart.feed({&feed, 1},
                 {.eviction = n_read == 12 ? PromptEviction::kAfter : PromptEviction::kNever,
                  .progress = {}});
    }
    test::decode_all(apart, expected, decoded);
    EXPECT_EQ(test::kept_positions(third.cache), test::kept_positions(expected.cache));
    EXPECT_TRUE(test::same_bits(test::decode_all(apart, third, Tokens{9}),
                                test::decode_all(apart, expected, Tokens{9})));
  }
}

TEST_F(BatchBorders, TokensForSequencesThatCannotTakeThemAreRefused) {
  expect_refused("not in the batch", [&](Run& run) {
    Sequence stranger = test::make_sequence(model_);
    run.batch.push(stranger, 1);
  });
  expect_refused("still reading its prompt (14 of 24 tokens)",
                 [](Run& run) { run.batch.push(run.reading, 1); });
  expect_refused("has token 3 to decode already",
                 [](Run& run) { run.batch.push(run.decoding, 1); });
  for (const int32_t token : {-1, n_vocab_}) {
    expect_refused("token " + std::to_string(token) + " is not in the vocabulary", [&](Run& run) {
      Sequence third = test::make_sequence(model_);
      run.batch.add(third, Tokens{1, token});
    });
  }
  Sequence ready = test::make_sequence(model_);
  expect_refused("not in the vocabulary", [&](Run& run) {
    run.batch.add(ready);
    try {
      run.batch.push(ready, n_vocab_);
    } catch (...) {
      run.batch.remove(ready);
      throw;
    }
  });
}

TEST_F(BatchBorders, RemovingOneThatIsNotThereIsRefused) {
  expect_refused("not in the batch", [&](Run& run) {
    const Sequence stranger = test::make_sequence(model_);
    run.batch.remove(stranger);
  });
}

TEST_F(BatchBorders, MoreThanThePlanIsRefused) {
  Sequence third = test::make_sequence(model_, "full", 30);
  Sequence fourth = test::make_sequence(model_, "full", 30);
  expect_refused("the batch has 3 sequences, its most", [&](Run& run) {
    run.batch.add(third);
    try {
      run.batch.add(fourth);
    } catch (...) {
      run.batch.remove(third);
      throw;
    }
  });
  expect_refused("no room for 31 more rows: layer 0 holds 0 of at most 30",
                 [&](Run& run) { run.batch.add(third, test::random_tokens(31, n_vocab_)); });
  expect_refused("no room for 1 more rows: layer 0 holds 30 of at most 30", [&](Run& run) {
    Engine apart(model_, {.n_threads = 1, .n_batch = kBatch});
    test::feed_all(apart, third, test::random_tokens(30, n_vocab_));
    run.batch.add(third);
    try {
      run.batch.push(third, 1);
    } catch (...) {
      run.batch.remove(third);
      throw;
    }
  });
  Engine engine(model_, {.n_threads = 1, .n_batch = kBatch});
  const auto refusal = [&](int n_sequences, int n_tokens) {
    return error_of(ErrorCode::kInvalidArgument,
                    [&] { Batch(engine, {.n_sequences = n_sequences, .n_tokens = n_tokens}); });
  };
  EXPECT_NE(refusal(0, 8).find("0 sequences"), std::string::npos);
  EXPECT_NE(refusal(9, 8).find("can have 9 … 32"), std::string::npos);
  EXPECT_NE(refusal(4, 33).find("can have 4 … 32"), std::string::npos);
}

TEST_F(BatchBorders, SequencesThatCannotBeUsedAreRefused) {
  expect_refused("cancelled or failed", [&](Run& run) {
    Engine apart(model_, {.n_threads = 1, .n_batch = kBatch});
    Sequence cancelled = test::make_sequence(model_);
    std::atomic<bool> cancel{true};
    const Tokens tokens{1, 2, 3};
    const engine::Feed feed{&cancelled, tokens};
    error_of(ErrorCode::kCancelled, [&] {
      apart.feed({&feed, 1}, {.progress = {}, .cancel = &cancel});
    });
    run.batch.add(cancelled, tokens);
  });
  expect_refused("'knorm:budget=10%' has a budget that depends on the prompt", [&](Run& run) {
    Sequence open = test::make_sequence(model_, "knorm:budget=10%");
    run.batch.add(open, Tokens{1, 2, 3}, PromptEviction::kPerChunk);
  });
  expect_refused("needs key norms, which its cache does not store", [&](Run& run) {
    Sequence other = test::make_sequence(model_);
    other.policy = policy::Policy::parse("knorm:budget=10");
    run.batch.add(other, Tokens{1, 2, 3});
  });
  expect_refused("its cache has 3 layers with 2 KV heads of 16, the model 2 layers with 2",
                 [&](Run& run) {
                   const Model deeper(test::write_tiny_model({.n_layers = 3}), {});
                   Sequence other = test::make_sequence(deeper);
                   run.batch.add(other, Tokens{1, 2, 3});
                 });
}

// What becomes of a member behind the batch's back stops the step before it begins; without that member it goes on.
TEST_F(BatchBorders, AMemberThatFailsHarmsNobodyElse) {
  const auto expect_removable = [&](const std::string& part,
                                    const std::function<void(Sequence&)>& spoil) {
    const auto logits = logits_when([&](Run& run) {
      Sequence third = test::make_sequence(model_, "full", 100);
      run.batch.add(third);
      run.batch.push(third, 1);
      spoil(third);
      for (int i = 0; i < 2; ++i) {
        const std::string message =
            error_of(ErrorCode::kInvalidArgument, [&] { run.batch.step(); });
        EXPECT_NE(message.find(part), std::string::npos) << message;
        EXPECT_EQ(run.reading.positions_fed, 14);
        EXPECT_TRUE(run.reading.is_usable);
      }
      run.batch.remove(third);
    });
    EXPECT_TRUE(test::same_bits(logits, undisturbed()));
  };
  expect_removable("cancelled or failed", [](Sequence& third) { third.is_usable = false; });
  expect_removable("had been fed 0 positions and has 4 now", [&](Sequence& third) {
    Engine apart(model_, {.n_threads = 1, .n_batch = kBatch});
    test::feed_all(apart, third, Tokens{1, 2, 3, 4});
  });
}

}  // namespace
}  // namespace winnow
