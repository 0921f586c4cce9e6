// Objects are drawn as Python draws them, and every text of them says the same.

#include "eval/schema_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "roles/formats.h"
#include "roles/stream.h"

namespace winnow::eval {
namespace {

std::string written(std::string_view format, std::span<const SchemaLeaf> leaves) {
  return std::ranges::find(schema_formats(), format, &SchemaFormat::name)->write(leaves);
}

// As CPython 3.11 draws them:
//   r = random.Random(1003)
//   def name(o): k = f"{r.choice(WORDS)}_{r.randint(0, 99)}"; return name(o) if k in o else k
//   def tree(d):
//     if d == 0: n = r.randint(4, 16); return "".join(r.choices(ascii_lowercase + digits, k=n))
//     o = {}
//     for _ in range(r.randint(2, 4)): k = name(o); o[k] = tree(d - 1)
//     return o
//   root = {}; k = name(root); root[k] = tree(2)
constexpr const char* kFromPython = R"({
  "papa_71": {
    "hotel_92": {
      "oscar_69": "oycss65usyy",
      "uniform_29": "tciuaobi6nj64j",
      "november_25": "1q11ee0"
    },
    "india_23": {
      "mike_25": "mwfspdcpsscp9zl",
      "whiskey_50": "ueazqb9wis2rz"
    },
    "alpha_26": {
      "sierra_80": "ypogcu6lb",
      "alpha_62": "d416",
      "zulu_23": "ncsqj2"
    }
  }
})";

TEST(SchemaObjects, AreThoseOfPython) {
  PythonRandom random(1003);
  EXPECT_EQ(written("json", draw_leaves(8, random)), kFromPython);
}

TEST(SchemaObjects, FewerLeavesAreTheFirstOfMore) {
  PythonRandom random(7);
  const std::vector<SchemaLeaf> more = draw_leaves(100, random);
  ASSERT_EQ(more.size(), 100);
  for (const int n : {1, 2, 37, 99}) {
    PythonRandom again(7);
    const std::vector<SchemaLeaf> fewer = draw_leaves(n, again);
    ASSERT_EQ(std::ssize(fewer), n);
    EXPECT_EQ(fewer.back().dotted_path(), more[fewer.size() - 1].dotted_path());
    EXPECT_EQ(fewer.back().value, more[fewer.size() - 1].value);
  }
}

TEST(SchemaObjects, PathsAreDifferentAndEndWithTheNames) {
  PythonRandom random(1);
  const std::vector<SchemaLeaf> leaves = draw_leaves(1 << 20, random);
  EXPECT_GT(leaves.size(), 2600 * 4);
  EXPECT_LT(leaves.size(), 2600 * 16);
  std::set<std::string> paths;
  for (const SchemaLeaf& leaf : leaves) {
    EXPECT_TRUE(paths.insert(leaf.dotted_path()).second) << leaf.dotted_path();
  }
}

// Shares of bytes that the study's own texts of 32,000 characters have.
TEST(SchemaObjects, HaveTheSharesOfTheStudy) {
  std::array<double, roles::kRoles> n_bytes{};
  double n_all = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    PythonRandom random(seed);
    const std::string text = written("json", draw_leaves(800, random));
    for (const roles::Span& span : roles::label_text(text, roles::find_format("json"))) {
      n_bytes[static_cast<size_t>(span.label.role)] += static_cast<double>(span.end - span.begin);
    }
    n_all += static_cast<double>(text.size());
  }
  const auto share = [&](roles::Role role) { return n_bytes[static_cast<size_t>(role)] / n_all; };
  EXPECT_NEAR(share(roles::Role::kKey), 0.347, 0.005);
  EXPECT_NEAR(share(roles::Role::kSpace), 0.290, 0.005);
  EXPECT_NEAR(share(roles::Role::kValue), 0.281, 0.005);
  EXPECT_NEAR(share(roles::Role::kDelim), 0.078, 0.005);
}

TEST(SchemaObjects, AreWrittenInEveryFormat) {
  const std::vector<SchemaLeaf> leaves = {{{"a_1", "b_2", "c_3"}, "xyzz"},
                                          {{"a_1", "b_2", "d_4"}, "12e4"},
                                          {{"a_1", "e_5", "c_3"}, "true"},
                                          {{"f_6", "b_2", "c_3"}, "q9q9"}};
  EXPECT_EQ(written("compact", leaves),
            R"({"a_1":{"b_2":{"c_3":"xyzz","d_4":"12e4"},"e_5":{"c_3":"true"}},)"
            R"("f_6":{"b_2":{"c_3":"q9q9"}}})");
  EXPECT_EQ(nlohmann::ordered_json::parse(written("json", leaves)).dump(),
            written("compact", leaves));
  EXPECT_EQ(written("xml", leaves), R"(<root>
  <a_1>
    <b_2>
      <c_3>xyzz</c_3>
      <d_4>12e4</d_4>
    </b_2>
    <e_5>
      <c_3>true</c_3>
    </e_5>
  </a_1>
  <f_6>
    <b_2>
      <c_3>q9q9</c_3>
    </b_2>
  </f_6>
</root>)");
  EXPECT_EQ(written("xml-attributes", leaves), R"(<root>
  <a_1>
    <b_2 c_3="xyzz" d_4="12e4"/>
    <e_5 c_3="true"/>
  </a_1>
  <f_6>
    <b_2 c_3="q9q9"/>
  </f_6>
</root>)");
  EXPECT_EQ(written("yaml", leaves), R"(a_1:
  b_2:
    c_3: xyzz
    d_4: "12e4"
  e_5:
    c_3: "true"
f_6:
  b_2:
    c_3: q9q9)");
  EXPECT_EQ(written("csv", leaves),
            "group,object,key,value\na_1,b_2,c_3,xyzz\na_1,b_2,d_4,12e4\na_1,e_5,c_3,true\n"
            "f_6,b_2,c_3,q9q9");
  EXPECT_EQ(written("markdown", leaves), R"(| group | object | key | value |
| --- | --- | --- | --- |
| a_1 | b_2 | c_3 | xyzz |
| a_1 | b_2 | d_4 | 12e4 |
| a_1 | e_5 | c_3 | true |
| f_6 | b_2 | c_3 | q9q9 |)");
}

}  // namespace
}  // namespace winnow::eval
