// Masses and shares by role, by hand.

#include "eval/role_diagnosis.h"

#include <gtest/gtest.h>

namespace winnow::eval {
namespace {

using roles::Role;

constexpr Role K = Role::kKey;
constexpr Role V = Role::kValue;
constexpr Role D = Role::kDelim;

// Two heads in the first layer, none in the second, whose queries see a window. Eight positions, of which the document begins at
// the first.
RoleDiagnosis first_is_delim() {
  return {{0, {D, K, K, V, V, V}},
          {{{4, 1, 0.5, 0.5, 0.25, 0.25, 1, 0.5}, {2, 2, 1, 1, 1, 0.5, 0.25, 0.25}}, {}}};
}

TEST(RoleDiagnosis, MassIsTheMeanOfARolesTokens) {
  Record record;
  first_is_delim().describe_mass(record);
  EXPECT_DOUBLE_EQ(record.metrics.at("mass.DELIM"), 3);
  EXPECT_DOUBLE_EQ(record.metrics.at("rest.DELIM"), 0);  // there is no other
  EXPECT_DOUBLE_EQ(record.metrics.at("mass.KEY"), 4.5 / 4);
  EXPECT_DOUBLE_EQ(record.metrics.at("rest.KEY"), 4.5 / 4);
  EXPECT_DOUBLE_EQ(record.metrics.at("mass.VALUE"), 3.5 / 6);
  EXPECT_DOUBLE_EQ(record.metrics.at("key_value"), (4.5 / 4) / (3.5 / 6));
  EXPECT_DOUBLE_EQ(record.metrics.at("snr"), 3.5 / (4.5 + 6));
  EXPECT_DOUBLE_EQ(record.metrics.at("first"), 3);
  EXPECT_DOUBLE_EQ(record.metrics.at("mass_error"), 0);
  EXPECT_EQ(record.metrics.count("mass.HEADER"), 0);
  const HeadValues expected = {{(1.5 / 2) / (1.0 / 3), (3.0 / 2) / (2.5 / 3)}, {}};
  ASSERT_EQ(record.heads.at("key_value").size(), 2);
  for (size_t head = 0; head < 2; ++head) {
    EXPECT_DOUBLE_EQ(record.heads.at("key_value")[0][head], expected[0][head]);
  }
  EXPECT_TRUE(record.heads.at("key_value")[1].empty());
}

TEST(RoleDiagnosis, ADocumentBehindATemplateHasNoFirstPosition) {
  Record record;
  RoleDiagnosis({2, {K, V}}, {{{3, 0.5, 0.25, 0.25}}}).describe_mass(record);
  EXPECT_DOUBLE_EQ(record.metrics.at("mass.KEY"), 0.25);
  EXPECT_DOUBLE_EQ(record.metrics.at("rest.KEY"), 0.25);
  EXPECT_DOUBLE_EQ(record.metrics.at("first"), 3);
}

TEST(RoleDiagnosis, CountsWhatReceivesMuchAndTheQuarters) {
  // Eight tokens: the two least and the two most are quarters.
  Record record;
  RoleDiagnosis({0, {D, D, K, K, V, V, V, V}}, {{{20, 11, 5, 4, 3, 2, 1, 0.5}}})
      .describe_mass(record);
  EXPECT_DOUBLE_EQ(record.metrics.at("above10.DELIM"), 2);
  EXPECT_DOUBLE_EQ(record.metrics.at("above10.KEY"), 0);
  EXPECT_DOUBLE_EQ(record.metrics.at("top.DELIM"), 1);
  EXPECT_DOUBLE_EQ(record.metrics.at("top.KEY"), 0);
  EXPECT_DOUBLE_EQ(record.metrics.at("bottom.VALUE"), 0.5);
  EXPECT_NEAR(record.metrics.at("mass_error"), 46.5 / 8 - 1, 1e-12);
}

TEST(RoleDiagnosis, SharesAreOfTheDocumentsTokens) {
  Record record;
  // The document lies at 1 … 4.
  RoleDiagnosis({1, {K, V, D, V}}, {{{9, 1, 2, 3, 4, 1}, {9, 1, 1, 1, 1, 1}}})
      .describe_kept({{{0, 1, 2, 5}, {2, 4, 5}}}, record);
  EXPECT_DOUBLE_EQ(record.metrics.at("kept.KEY"), 0.5);
  EXPECT_DOUBLE_EQ(record.metrics.at("kept.VALUE"), 0.75);
  EXPECT_DOUBLE_EQ(record.metrics.at("kept.DELIM"), 0);
  EXPECT_DOUBLE_EQ(record.metrics.at("kept.key_value"), 0.5 / 0.75);
  EXPECT_DOUBLE_EQ(record.metrics.at("snr"), (2 + 1 + 1) / 1.0);
  EXPECT_EQ(record.metrics.count("kept.WS"), 0);
}

}  // namespace
}  // namespace winnow::eval
