// Following the assignments of the document leads to the gold answer.

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "eval/task_samples.h"

namespace winnow::eval {
namespace {

// The names that hold the value asked for, by reading the document.
std::set<std::string> holders(const Sample& sample) {
  std::smatch asked;
  EXPECT_TRUE(std::regex_search(sample.questions[0], asked, std::regex("[0-9]{5}")));
  std::map<std::string, std::string> values;
  std::set<std::string> names;
  const std::regex assignment("VAR ([A-Z0-9]+) = ([A-Z0-9]+)\\.");
  for (auto each = std::sregex_iterator(sample.document.begin(), sample.document.end(), assignment);
       each != std::sregex_iterator(); ++each) {
    const std::string from = (*each)[2];
    const std::string value = values.contains(from) ? values.at(from) : from;
    values[(*each)[1]] = value;
    if (value == asked.str()) {
      names.insert((*each)[1]);
    }
  }
  return names;
}

TEST(Vt, TheChainLeadsToItsVariables) {
  for (const char* spec : {"vt", "vt:hops=2", "vt:hops=3,chains=4", "vt:hops=1,example=false"}) {
    for (int index = 0; index < 10; ++index) {
      const Sample sample = sample_of(spec, index);
      EXPECT_EQ(holders(sample),
                std::set<std::string>(sample.answers[0].begin(), sample.answers[0].end()));
    }
  }
  EXPECT_EQ(sample_of("vt").answers[0].size(), 5);
  EXPECT_EQ(sample_of("vt:chains=4,hops=2").pool.size(), 12);
}

TEST(Vt, NamingAllVariablesIsNotWorthMuch) {
  const ParsedTask parsed = parse_task("vt:chains=2");
  const Sample sample = sample_of("vt:chains=2");
  const Score all = parsed.task->score(sample, 0, joined(sample.pool, ", "));
  EXPECT_EQ(all.primary, 0);
  EXPECT_EQ(all.secondary.at("contained"), 1);
  EXPECT_EQ(all.secondary.at("recall_precision"), 0.5);
  EXPECT_DOUBLE_EQ(parsed.task->score(sample, 0, sample.answers[0][2]).secondary.at("contained"),
                   0.2);
}

}  // namespace
}  // namespace winnow::eval
