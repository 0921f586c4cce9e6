// What a batch refuses harms nobody in it, and neither does a member that leaves early or fails.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Batch;
using engine::Engine;
using engine::PromptEviction;
using engine::Sequence;
using model::Model;
using test::error_of;

using Tokens = std::vector<int32_t>;

constexpr int kBatch = 32;

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
