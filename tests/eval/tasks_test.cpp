// What holds for every task: prompts that can be made again, of the wanted length, with gold answers that score full.

#include "eval/tasks.h"

#include <gtest/gtest.h>

#include "eval/task_samples.h"
#include "support/error_of.h"

namespace winnow::eval {
namespace {

using test::error_of;

// FNV-1a.
uint64_t hash_of(std::string_view text, uint64_t hash) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

uint64_t hash_of(const Sample& sample) {
  uint64_t hash = hash_of(sample.document, 0xcbf29ce484222325);
  for (size_t i = 0; i < sample.questions.size(); ++i) {
    hash = hash_of(sample.questions[i], hash);
    for (const std::string& answer : sample.answers[i]) {
      hash = hash_of(answer, hash);
    }
  }
  return hash;
}

// Sample 3 of seed 1 at 1000 tokens. A task's prompts never change without a new name or option: results would differ.
struct Golden {
  const char* spec;
  uint64_t hash;
};
const Golden kGolden[] = {
    {"cwe", 0x361a5e46a999cd23},
    {"cwe:common=3,example=false", 0x292b69b71d1051cd},
    {"doc:file=FILE", 0x34f53cb326813879},
    {"doc:file=FILE,kind=cloze,questions=3", 0x23f9667df6066ad9},
    {"doc:file=FILE,kind=lookup", 0x34f53cb326813879},
    {"doc:file=FILE,kind=quote", 0x408f396e1f3bf009},
    {"fwe", 0xb29e82cef385a56b},
    {"json-out", 0xb3da4eff53e22225},
    {"multiturn", 0xfbba03ee61b5c1de},
    {"niah", 0x84e2a14014ae32da},
    {"niah-multikey-1", 0xe9193b296fbda83f},
    {"niah-multikey-2", 0xefbc1698639ec34f},
    {"niah-multikey-3", 0x3a1b225c5810168f},
    {"niah-multiquery", 0xc277d2f0af2a8d47},
    {"niah-multivalue", 0x3bb5cf0702da8cb8},
    {"niah-single-1", 0x85e13a81feba5a9c},
    {"niah-single-2", 0x84e2a14014ae32da},
    {"niah-single-3", 0xa10f3d890394e811},
    {"niah:type=word,keys=3", 0x1a9269c2d70aa9c6},
    {"niah:type=paraphrased,keys=4", 0x3b904c6994e62d09},
    {"qa", 0xea60e2f1bf1b6c61},
    {"rules:questions=2", 0x83630507897b2d68},
    {"rules:rules=7", 0xc42d3a36a052486e},
    {"ruler-qa:file=SQUAD", 0x1cf09da89c3b2f2c},
    {"schema", 0x1bd34ba3a8815a0f},
    {"schema:format=compact", 0x13b4fc454da0d0b4},
    {"schema:format=xml", 0x69e09b8fbc799739},
    {"schema:format=xml-attributes", 0x8e512e12af9409f2},
    {"schema:format=yaml", 0x40c3fbbcd2b683ab},
    {"schema:format=csv", 0xb13a33d85a7aaaa3},
    {"schema:format=markdown", 0x1817d094246ecb7},
    {"schema-doc:file=RECORDS", 0x4c280014a659f178},
    {"schema-doc:file=ELEMENTS,questions=3", 0xaf4d8185204efc74},
    {"vt", 0x3306627cbb2636c6},
    {"vt:chains=3,hops=2,example=false", 0xac82e7a5c6b95283},
    {"cwe-seed", 0xa2d6b7facc799ef},
    {"fwe-seed", 0xd4be3a395aa2dee5},
    {"niah-seed", 0x1132011efe69e18c},
    {"niah-seed:variant=multikey", 0xf16d31d3f351828},
    {"niah-seed:variant=multivalue", 0xb2e884b8281006e0},
    {"qa-seed", 0xba803adc15ffcc97},
    {"vt-seed", 0x58214028a25306f3},
    {"vt-seed:hops=2", 0xdd9014743c5e360e},
    {"wikitable:file=TABLES", 0x20bbb38fd911fccf},
};

class EveryTask : public testing::TestWithParam<Golden> {};

TEST_P(EveryTask, MakesTheSamePromptsEverywhere) {
  const Sample sample = sample_of(GetParam().spec, 3);
  EXPECT_EQ(hash_of(sample), GetParam().hash) << std::hex << "0x" << hash_of(sample);
  EXPECT_EQ(hash_of(sample_of(GetParam().spec, 3)), hash_of(sample));
  EXPECT_NE(hash_of(sample_of(GetParam().spec, 4)), hash_of(sample));
  EXPECT_NE(hash_of(sample_of(GetParam().spec, 3, 1000, 2)), hash_of(sample));
}

TEST_P(EveryTask, HasTheWantedLength) {
  const ParsedTask parsed = parse_task(with_file(GetParam().spec));
  for (const int n_tokens : {700, 1024, 4096}) {
    for (const int index : {0, 9}) {
      const SampleRequest request = request_of(index, n_tokens);
      const Sample sample = parsed.task->make(request);
      const int n = prompt_tokens(request, sample);
      EXPECT_LE(n, n_tokens);
      EXPECT_GE(n, 0.95 * n_tokens);
    }
  }
}

TEST_P(EveryTask, SaysWhenAPromptIsTooShort) {
  const ParsedTask parsed = parse_task(with_file(GetParam().spec));
  const std::string error =
      error_of(ErrorCode::kInvalidArgument, [&] { parsed.task->make(request_of(0, 20)); });
  EXPECT_NE(error.find("20 tokens is too short"), std::string::npos) << error;
}

TEST_P(EveryTask, AsksWhatItCanScore) {
  const ParsedTask parsed = parse_task(with_file(GetParam().spec));
  for (const int index : {0, 1, 7}) {
    const Sample sample = parsed.task->make(request_of(index, 1000));
    ASSERT_FALSE(sample.questions.empty());
    ASSERT_EQ(sample.questions.size(), sample.answers.size());
    EXPECT_GT(sample.n_answer_tokens, 0);
    EXPECT_EQ(sample.labels.at("length"), "1000");
    for (int question = 0; question < std::ssize(sample.questions); ++question) {
      const std::string gold = gold_text(sample, question);
      EXPECT_GE(sample.n_answer_tokens, count_tokens(gold));
      // Where the form counts, nothing may stand around the answer.
      const bool is_strict = parsed.name == "json-out" || parsed.name == "rules";
      const Score score =
          parsed.task->score(sample, question, is_strict ? gold : " " + gold + ".\n\nWhat else?");
      EXPECT_EQ(score.primary, 1) << gold;
      EXPECT_EQ(parsed.task->score(sample, question, "").primary, 0);
      EXPECT_LT(parsed.task->score(sample, question, "I cannot say that, I fear").primary, 1);
      for (const auto& [name, value] : score.secondary) {
        EXPECT_GE(value, 0) << name;
        EXPECT_LE(value, 1) << name;
      }
    }
  }
}

TEST_P(EveryTask, SpellsItsSpecSoThatItReadsBack) {
  const std::string spec = parse_task(with_file(GetParam().spec)).spec;
  EXPECT_EQ(parse_task(spec).spec, spec);
  EXPECT_EQ(hash_of(sample_of(spec, 3)), hash_of(sample_of(GetParam().spec, 3)));
}

INSTANTIATE_TEST_SUITE_P(Tasks, EveryTask, testing::ValuesIn(kGolden), [](const auto& instance) {
  std::string name = instance.param.spec;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(Tasks, AllAreInTheGoldenList) {
  for (const TaskEntry& entry : kTasks) {
    EXPECT_TRUE(std::ranges::any_of(kGolden, [&](const Golden& golden) {
      const std::string_view spec = golden.spec;
      return spec.substr(0, spec.find(':')) == entry.name;
    })) << entry.name;
  }
}

TEST(Tasks, NameWhatIsAllowed) {
  const auto refusal = [](const char* spec) {
    return error_of(ErrorCode::kInvalidArgument, [&] { parse_task(spec); });
  };
  EXPECT_NE(refusal("nia").find("unknown task 'nia' (did you mean 'niah'?"), std::string::npos);
  EXPECT_EQ(refusal("niah:keys=0,type=letter,key,colour=red"),
            "task 'niah:keys=0,type=letter,key,colour=red': option 3 'key' is not of the form "
            "key=value; keys=0 is out of range (allowed: 1 to 64); type=letter is not one of "
            "number|word|uuid|paraphrased; unknown option 'colour' (allowed: keys, values, "
            "queries, turns, type, key, haystack, depths, depth)");
  EXPECT_EQ(refusal("niah+adakv"), "task 'niah+adakv': '+adakv' has no meaning for a task");
  EXPECT_NE(refusal(""), "");
}

TEST(Tasks, PresetsAreDefaultsThatCanBeChanged) {
  EXPECT_EQ(parse_task("niah-multikey-3").spec, "niah-multikey-3");
  EXPECT_EQ(parse_task("niah-multikey-3:type=number").spec, "niah-multikey-3:type=number");
  EXPECT_EQ(parse_task("niah:type=number,keys=2").spec, "niah:keys=2");
  const auto options = describe_options(find_task("niah-multikey-3"));
  EXPECT_EQ(options.at(4).name, "type");
  EXPECT_EQ(options.at(4).default_value, "uuid");
}

}  // namespace
}  // namespace winnow::eval
