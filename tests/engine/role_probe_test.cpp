// Probes: what block features say of a text, and files of weights.

#include "engine/role_probe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "base/files.h"
#include "engine/token_roles.h"
#include "model/model.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::BlockFeature;
using engine::BlockFeatures;
using engine::RoleProbe;
using roles::Role;

const model::Model& tiny() {
  static const model::Model model(test::write_tiny_model(), {});
  return model;
}

// One of the features of every byte, as digits.
std::string feature(std::string_view text, BlockFeature which, bool is_question = false) {
  std::vector<model::ByteRange> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    bytes.push_back({i, i + 1});
  }
  std::string digits;
  for (const BlockFeatures& each : engine::block_features(text, bytes, is_question)) {
    digits += static_cast<char>('0' + each[static_cast<size_t>(which)]);
  }
  return digits;
}

TEST(BlockFeatures, CountWhatIsOpen) {
  // Twice the depth, and one more in lists.
  EXPECT_EQ(feature(R"({"a": [{}]} x)", BlockFeature::kDepth), "0222222565200");
  EXPECT_EQ(feature("<a><b/></a>t", BlockFeature::kDepth), "022244424000");
  EXPECT_EQ(feature("}]a", BlockFeature::kDepth), "000");
}

TEST(BlockFeatures, KnowTheLastMarkAndWhetherAQuoteIsOpen) {
  // Twice the place of the mark in {}[],:<>=/|, from 1, and one more within quotes.
  EXPECT_EQ(feature(R"(a{"b,":1)", BlockFeature::kMark), "0023332<");
  EXPECT_EQ(feature("\"\\\"x\"y", BlockFeature::kMark), "011110");
  EXPECT_EQ(feature("\"x\ny", BlockFeature::kMark), "0110") << "no string goes on in the next line";
}

TEST(BlockFeatures, CountTokensOfALine) {
  EXPECT_EQ(feature("ab\ncdefghijkl", BlockFeature::kLine), "0120123456777");
  EXPECT_EQ(feature("ab", BlockFeature::kSegment), "00");
  EXPECT_EQ(feature("ab", BlockFeature::kSegment, true), "11");
}

// Token 'a' is KEY, but VALUE behind a 'b' and HEADER behind an opening brace.
RoleProbe some_probe(bool has_block_features) {
  const std::vector<model::Token> seen =
      tiny().vocabulary().tokenize("ab", model::SpecialText::kPlain);
  RoleProbe probe(tiny().vocabulary(), seen, has_block_features);
  const std::vector<model::Token> text = {seen[1], seen[0]};
  const std::vector<BlockFeatures> none(2);
  const RoleProbe::Active active = probe.active(text, none, 1);
  // The bias, then the ids at -1 and 0; those beyond the ends have no weights.
  EXPECT_EQ(active.n, has_block_features ? 7U : 3U);
  probe.weights()[active.rows[1]][index(Role::kValue)] = 2;
  probe.weights()[active.rows[2]][index(Role::kKey)] = 1;
  probe.weights()[active.rows[0]][index(Role::kProse)] = 0.5F;
  if (has_block_features) {
    BlockFeatures behind_brace{};
    behind_brace[static_cast<size_t>(BlockFeature::kMark)] = 2;
    const std::vector<BlockFeatures> features(2, behind_brace);
    const RoleProbe::Active marked = probe.active(text, features, 1);
    probe.weights()[marked.rows[4]][index(Role::kHeader)] = 9;
  }
  return probe;
}

std::vector<Role> labels(const RoleProbe& probe, const std::string& text) {
  return probe.label(tiny().vocabulary(), text,
                     tiny().vocabulary().tokenize(text, model::SpecialText::kPlain));
}

TEST(RoleProbe, AddsWeightsOfIdsAroundAToken) {
  const RoleProbe probe = some_probe(false);
  EXPECT_EQ(labels(probe, "a"), (std::vector{Role::kKey}));
  EXPECT_EQ(labels(probe, "ba"), (std::vector{Role::kProse, Role::kValue}));
  EXPECT_EQ(labels(probe, "bza"), (std::vector{Role::kProse, Role::kValue, Role::kKey}))
      << "an id that was not seen has no weights, and ids have theirs one place on";
  EXPECT_EQ(labels(probe, "{a"), (std::vector{Role::kProse, Role::kKey}));
}

TEST(RoleProbe, AddsWeightsOfBlockFeatures) {
  const RoleProbe probe = some_probe(true);
  EXPECT_EQ(labels(probe, "ba"), (std::vector{Role::kProse, Role::kValue}));
  EXPECT_EQ(labels(probe, "{a"), (std::vector{Role::kProse, Role::kHeader}));
}

TEST(RoleProbe, IsTheSameFromAFile) {
  for (const bool has_block_features : {false, true}) {
    const std::string path = test::temporary_path("role.probe");
    const RoleProbe probe = some_probe(has_block_features);
    probe.write(path);
    const RoleProbe read(path);
    EXPECT_EQ(read.has_block_features(), has_block_features);
    EXPECT_EQ(read.n_seen(), 2U);
    EXPECT_LE(probe.n_bytes(), std::filesystem::file_size(path));
    for (const char* text : {"a", "ba", "{a", "abab{a}ab"}) {
      EXPECT_EQ(labels(read, text), labels(probe, text));
    }
    const engine::RoleSource source("probe:" + path);
    EXPECT_EQ(source.name(), "probe:" + read.digest());
    EXPECT_EQ(source.label(tiny().vocabulary(), "ba",
                           tiny().vocabulary().tokenize("ba", model::SpecialText::kPlain)),
              labels(probe, "ba"));
  }
}

TEST(RoleProbe, RefusesAnotherVocabularyAndDamagedFiles) {
  const std::string path = test::temporary_path("damaged.probe");
  RoleProbe probe = some_probe(true);
  probe.write(path);
  const model::Model other(test::write_tiny_model({.sentencepiece = true}), {});
  test::error_of(ErrorCode::kInvalidArgument, [&] { RoleProbe(path).check(other.vocabulary()); });
  RoleProbe(path).check(tiny().vocabulary());

  const std::string whole = read_text_file(path);
  for (const size_t n : {size_t{0}, size_t{7}, whole.size() / 2, whole.size() - 1}) {
    write_file_atomically(path, whole.substr(0, n));
    test::error_of(ErrorCode::kBadData, [&] { const RoleProbe refused(path); });
  }
  probe.weights()[3][2] = std::numeric_limits<float>::quiet_NaN();
  probe.write(path);
  const std::string message =
      test::error_of(ErrorCode::kBadData, [&] { const RoleProbe refused(path); });
  EXPECT_NE(message.find("weight 20"), std::string::npos) << message;
  test::error_of(ErrorCode::kNotFound, [] { const RoleProbe refused("/nowhere/at-all"); });
}

}  // namespace
}  // namespace winnow
