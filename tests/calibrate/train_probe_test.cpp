// Training probes: they learn what labellers say of texts of one kind, and say it of others of that kind.

#include "calibrate/train_probe.h"

#include <gtest/gtest.h>

#include <random>

#include "model/model.h"
#include "support/tiny_model.h"

namespace winnow::calibrate {
namespace {

using roles::Role;

const model::Vocabulary& vocabulary() {
  static const model::Model model(test::write_tiny_model(), {});
  return model.vocabulary();
}

// Objects of words that are keys in one place and values in another.
std::string draw_object(std::mt19937& random) {
  constexpr const char* kWords[] = {"alpha", "beta", "word", "the", "sing", "x7"};
  std::uniform_int_distribution<size_t> draw(0, 5);
  std::string text = "{";
  for (int i = 0; i < 6; ++i) {
    text += std::string(i == 0 ? "" : ",") + "\n  \"" + kWords[draw(random)] + "\": \"" +
            kWords[draw(random)] + kWords[draw(random)] + "\"";
  }
  return text + "\n}";
}

std::vector<ProbeText> documents(int n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<ProbeText> texts;
  for (int i = 0; i < n; ++i) {
    texts.push_back(probe_document(vocabulary(), draw_object(random), roles::find_format("json")));
  }
  return texts;
}

TEST(TrainProbe, LearnsWhatTheLabellerSays) {
  const std::vector<ProbeText> trained_on = documents(40, 1);
  const std::vector<ProbeText> held_out = documents(10, 2);
  const ProbeQuality ids = judge_probe(train_probe(vocabulary(), trained_on, false, {}), held_out);
  const ProbeQuality blocks =
      judge_probe(train_probe(vocabulary(), trained_on, true, {}), held_out);
  EXPECT_EQ(ids.n_tokens, blocks.n_tokens);
  // Most tokens are single letters: five of them do not always tell a key from a value, but the mark before the string does.
  EXPECT_LT(ids.accuracy(), 0.98);
  EXPECT_GT(ids.accuracy(), 0.7);
  EXPECT_EQ(blocks.accuracy(), 1);
  EXPECT_EQ(blocks.f1(Role::kKey), 1);
  EXPECT_LT(ids.f1(Role::kKey), 1);
  EXPECT_EQ(ids.f1(Role::kHeader), 1) << "neither there nor said";
}

TEST(TrainProbe, TellsQuestionsFromDocuments) {
  std::vector<ProbeText> trained_on = documents(20, 1);
  for (int i = 0; i < 20; ++i) {
    trained_on.push_back(probe_question(vocabulary(), "What is at \"alpha\" of \"the\"?"));
  }
  const ProbeText question = probe_question(vocabulary(), "And \"beta\"?");
  const ProbeQuality quality =
      judge_probe(train_probe(vocabulary(), trained_on, true, {}), {&question, 1});
  EXPECT_EQ(quality.accuracy(), 1);
  EXPECT_EQ(quality.n_there[index(Role::kProse)], quality.n_tokens);
}

TEST(TrainProbe, IsTheSameAgain) {
  const std::vector<ProbeText> texts = documents(5, 3);
  engine::RoleProbe first = train_probe(vocabulary(), texts, true, {});
  engine::RoleProbe again = train_probe(vocabulary(), texts, true, {});
  engine::RoleProbe other = train_probe(vocabulary(), texts, true, {.seed = 1});
  EXPECT_TRUE(std::ranges::equal(first.weights(), again.weights()));
  EXPECT_FALSE(std::ranges::equal(first.weights(), other.weights()));
}

TEST(TrainProbe, CountsWhatIsRight) {
  ProbeQuality quality;
  EXPECT_EQ(quality.accuracy(), 1);
  quality.n_tokens = 8;
  quality.n_right = 6;
  quality.n_said[index(Role::kKey)] = 4;
  quality.n_there[index(Role::kKey)] = 3;
  quality.n_both[index(Role::kKey)] = 2;
  EXPECT_EQ(quality.accuracy(), 0.75);
  EXPECT_DOUBLE_EQ(quality.f1(Role::kKey), 4.0 / 7);
}

}  // namespace
}  // namespace winnow::calibrate
