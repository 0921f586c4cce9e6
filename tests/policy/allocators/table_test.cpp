#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "policy/head_table.h"
#include "policy/policy.h"
#include "policy/tiny_layer.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::policy {
namespace {

using test::error_of;

std::string table_refusal(const std::string& json) {
  return error_of(ErrorCode::kBadData, [&] { parse_head_table(json); });
}

TEST(HeadTable, SaysWhatIsWrongAndWhere) {
  for (const auto& [json, message] : {
           std::pair{"", "not JSON"},
           {"{\"weights\": [NaN]}", "neither NaN nor infinity"},
           {"{\"weights\": [1e999]}", "not JSON"},
           {"[1, 2]", "no object"},
           {"{}", "either \"weights\" or \"rows\""},
           {"{\"weights\": [1], \"rows\": [1]}", "either \"weights\" or \"rows\""},
           {"{\"weigths\": [1]}", "unknown key 'weigths' (did you mean 'weights'?"},
           {"{\"weights\": 3}", "weights is number, not a list of layers"},
           {"{\"weights\": []}", "weights has 0 entries"},
           {"{\"rows\": [[]]}", "rows[0] has 0 entries"},
           {"{\"weights\": [1, -2]}", "weights[1] is -2, which is negative"},
           {"{\"weights\": [1, null]}", "weights[1] is null, not a number"},
           {"{\"weights\": [1, \"2\"]}", "weights[1] is string, not a number"},
           {"{\"rows\": [[1, 2], [3, true]]}", "rows[1][1] is boolean, not a number"},
           {"{\"rows\": [[1, 2], [3]]}", "rows[1] has 1 heads, and rows[0] 2"},
           {"{\"rows\": [[1, 2], 3]}", "rows[1] is not a list of heads"},
           {"{\"rows\": [1, [2]]}", "rows[1] is a list of heads"},
           {"{\"weights\": [0, 0.0]}", "weights are all 0"},
           {"{\"weights\": [1e10]}", "allowed: 0 to 1e9"},
       }) {
    EXPECT_NE(table_refusal(json).find(message), std::string::npos)
        << json << ": " << table_refusal(json);
  }
  const HeadTable table = parse_head_table(R"({"comment": "by hand", "rows": [[1, 2], [3.5, 0]]})");
  EXPECT_EQ(table.unit, HeadTable::Unit::kRows);
  EXPECT_TRUE(table.is_per_head);
  EXPECT_EQ(table.mean(1), 1.75);
}

class TablePolicy : public ::testing::Test {
 protected:
  // Rows that each head of two layers of two heads of 100 rows keeps: [layer * 2 + head].
  std::vector<size_t> kept_by(const std::string& json, const std::string& rest = "") const {
    std::ofstream(path_) << json;
    Policy policy =
        Policy::parse("knorm+table:budget=20,n_sink=1,n_recent=1,table=" + path_ + rest);
    std::vector<std::unique_ptr<TinyLayer>> layers;
    std::vector<LayerView> views;
    for (int layer = 0; layer < 2; ++layer) {
      layers.push_back(std::make_unique<TinyLayer>(
          std::vector{TinyHead::random(100, 1), TinyHead::random(100, 2)}, layer));
      views.push_back(layers.back()->view());
    }
    kernels::ParallelFor parallel(1);
    Choice choice;
    EXPECT_TRUE(policy.choose(views, parallel, choice));
    std::vector<size_t> n_kept;
    for (const std::vector<int>& kept : choice.kept) {
      n_kept.push_back(kept.size());
    }
    return n_kept;
  }
  std::string refusal(const std::string& json, const std::string& rest = "") const {
    return error_of(ErrorCode::kInvalidArgument, [&] { kept_by(json, rest); });
  }

  const std::string path_ = test::temporary_path("table.json");
};

TEST_F(TablePolicy, DividesByWeightsAndRows) {
  using Rows = std::vector<size_t>;
  EXPECT_EQ(kept_by(R"({"weights": [1, 3]})"), (Rows{10, 10, 30, 30}));
  EXPECT_EQ(kept_by(R"({"weights": [[1, 2], [2, 3]]})"), (Rows{10, 20, 20, 30}));
  EXPECT_EQ(kept_by(R"({"rows": [15, 25]})"), (Rows{15, 15, 25, 25}));
  EXPECT_EQ(kept_by(R"({"rows": [[10, 20], [12, 22]]})"), (Rows{14, 24, 16, 26}));  // 4 more each
  EXPECT_EQ(kept_by(R"({"weights": [[0, 1], [1, 0]]})"),
            (Rows{3, 37, 37, 3}));  // n_sink + n_recent + 1
  EXPECT_EQ(kept_by(R"({"weights": [[1, 1], [0, 0]]})"), (Rows{37, 37, 3, 3}));
}

TEST_F(TablePolicy, OfAnotherShapeIsRefused) {
  EXPECT_NE(refusal(R"({"weights": [1, 2, 3]})").find("the table has 3 layers, and policies cut 2"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"weights": [[1], [2]]})").find("the table has 1 KV heads in a layer"),
            std::string::npos);
}

TEST_F(TablePolicy, ThatCannotBeReadIsAProblemOfTheSpec) {
  EXPECT_NE(refusal("{").find("table=" + path_ + ": it is not JSON"), std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument,
                     [] { Policy::parse("knorm+table:budget=20,table=/no/such/file"); })
                .find("/no/such/file"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [] { Policy::parse("knorm+table:budget=20"); })
                .find("needs a file"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument,
                     [&] { kept_by(R"({"weights": [1, 3]})", ",table_digest=0123"); })
                .find("has another content"),
            std::string::npos);
  for (const char* other : {"pyramid", "adakv", "pool"}) {
    EXPECT_NE(
        error_of(ErrorCode::kInvalidArgument,
                 [&] {
                   Policy::parse("knorm+table+" + std::string(other) + ":budget=20,table=" + path_);
                 })
            .find("both divide"),
        std::string::npos);
  }
}

// The canonical spec names the content, so that a cache file does not go on with another table.
TEST_F(TablePolicy, IsKnownByItsContent) {
  kept_by(R"({"weights": [1, 3]})");
  const std::string spec =
      Policy::parse("knorm+table:budget=20,n_sink=1,n_recent=1,table=" + path_).spec();
  EXPECT_NE(spec.find(",table_digest="), std::string::npos);
  EXPECT_EQ(Policy::parse(spec).spec(), spec);
  std::ofstream(path_) << R"({"weights": [1, 4]})";
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { Policy::parse(spec); })
                .find("has another content"),
            std::string::npos);
}

}  // namespace
}  // namespace winnow::policy
