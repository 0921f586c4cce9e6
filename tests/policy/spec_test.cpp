#include "policy/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <random>

#include "policy/methods.h"
#include "policy/policy.h"
#include "support/error_of.h"

namespace winnow::policy {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const std::string& spec, const std::string& default_budget = {}) {
  return test::error_of(ErrorCode::kInvalidArgument, [&] { Policy::parse(spec, default_budget); });
}

std::string canonical(const std::string& spec, const std::string& default_budget = {}) {
  return Policy::parse(spec, default_budget).spec();
}

TEST(Spec, IsCutIntoTrimmedParts) {
  const Spec spec = parse_spec("  knorm :  budget = 512 ,\tkeep=high ");
  EXPECT_EQ(spec.method, "knorm");
  ASSERT_EQ(spec.options.size(), 2U);
  EXPECT_EQ(spec.options[0].name, "budget");
  EXPECT_EQ(spec.options[0].value, "512");
  EXPECT_EQ(spec.options[1].name, "keep");
  EXPECT_EQ(spec.options[1].value, "high");
  EXPECT_THAT(spec.problems, ElementsAre());
}

TEST(Spec, FaultsOfFormNameTheirPart) {
  EXPECT_THAT(parse_spec("knorm:").problems, ElementsAre(HasSubstr("option 1 is empty")));
  EXPECT_THAT(parse_spec("knorm:budget=5,").problems, ElementsAre(HasSubstr("option 2 is empty")));
  EXPECT_THAT(parse_spec("knorm:budget").problems, ElementsAre(HasSubstr("option 1 'budget'")));
  EXPECT_THAT(parse_spec("knorm:=5").problems, ElementsAre(HasSubstr("option 1 '=5'")));
  EXPECT_THAT(parse_spec("knorm:budget=").problems, ElementsAre(HasSubstr("option 1 'budget='")));
  EXPECT_THAT(parse_spec("knorm:budget=5,n_sink=1,budget=6").problems,
              ElementsAre(AllOf(HasSubstr("option 3"), HasSubstr("second time"))));
}

TEST(PolicySpec, EchoesBudgetAndWhatIsNotDefaultInAFixedOrder) {
  EXPECT_EQ(canonical("knorm:budget=512"), "knorm:budget=512");
  EXPECT_EQ(canonical("knorm:keep=low,n_sink=4,budget=512"), "knorm:budget=512");
  EXPECT_EQ(canonical(" knorm : keep = high, slack=8,n_recent = 3 ,n_sink=0,budget= 512 "),
            "knorm:budget=512,n_sink=0,n_recent=3,slack=8,keep=high");
  EXPECT_EQ(canonical("random:seed=7,budget=12.50%"), "random:budget=12.5%,seed=7");
  EXPECT_EQ(canonical("full"), "full");
}

TEST(PolicySpec, EchoReadsBackAsTheSamePolicy) {
  for (const char* spec :
       {"full", "knorm:budget=512", "knorm:budget=64MiB,keep=high", "knorm:preset=paper,budget=9",
        "streaming:budget=10%,n_sink=1", "random:budget=1.5GB,seed=2147483647,slack=64",
        "random:budget=77,n_recent=0,n_sink=0", "knorm+pyramid+adakv:budget=9,beta=2.5",
        "streaming+pool:budget=10%,budget_floor=0.125"}) {
    const Policy first = Policy::parse(spec);
    const Policy second = Policy::parse(first.spec());
    EXPECT_EQ(second.spec(), first.spec());
    EXPECT_EQ(&second.method(), &first.method());
    EXPECT_EQ(second.options().budget.to_string(), first.options().budget.to_string());
    EXPECT_EQ(second.options().n_sink, first.options().n_sink);
    EXPECT_EQ(second.options().n_recent, first.options().n_recent);
    EXPECT_EQ(second.options().slack, first.options().slack);
  }
}

TEST(PolicySpec, DefaultBudgetIsUsedWhenTheSpecHasNone) {
  EXPECT_EQ(canonical("knorm", "10%"), "knorm:budget=10%");
  EXPECT_EQ(canonical("knorm:budget=512", "10%"), "knorm:budget=512");
  EXPECT_THAT(refusal("knorm", "5 apples"), HasSubstr("'apples'"));
}

TEST(PolicySpec, PaperPresetHasNoRecentWindowUnlessGiven) {
  EXPECT_EQ(canonical("knorm:preset=paper,budget=512"), "knorm:budget=512,n_recent=0");
  EXPECT_EQ(canonical("knorm:n_recent=9,preset=paper,budget=512"), "knorm:budget=512,n_recent=9");
  EXPECT_EQ(canonical("knorm:preset=default,budget=512"), "knorm:budget=512");
  EXPECT_EQ(canonical("knorm:preset=seed"), "knorm:budget=512,n_recent=0");
  EXPECT_EQ(canonical("knorm:preset=authors"), "knorm:budget=128,n_sink=0,n_recent=64");
  EXPECT_EQ(canonical("knorm:preset=authors,budget=99,n_recent=3"),
            "knorm:budget=99,n_sink=0,n_recent=3");
  EXPECT_THAT(refusal("knorm:preset=papr,budget=512"),
              AllOf(HasSubstr("preset=papr"), HasSubstr("default|paper|seed|authors")));
}

TEST(PolicySpec, MethodsTakeTheNamesThatTheirOptionsHaveElsewhere) {
  EXPECT_EQ(canonical("qfilters@keysvd:qfilters_budget=512,qfilters_n_sink=2,qfilters_recent=9,"
                      "qfilters_calib_tokens=64,qfilters_sign=+1"),
            "qfilters@keysvd:budget=512,n_sink=2,n_recent=9,calib_tokens=64");
  EXPECT_THAT(refusal("qfilters@keysvd:budget=512,qfilters_budget=9"),
              HasSubstr("'qfilters_budget' gives 'budget' a second time"));
  EXPECT_EQ(canonical("knorm:knorm_budget=512,knorm_n_sink=2,knorm_recent=9,knorm_keep=high"),
            "knorm:budget=512,n_sink=2,n_recent=9,keep=high");
  EXPECT_THAT(refusal("knorm:qfilters_budget=512"), HasSubstr("unknown option 'qfilters_budget'"));
}

TEST(PolicySpec, FullTakesNeitherBudgetNorOptions) {
  EXPECT_TRUE(Policy::parse("full").is_unlimited());
  EXPECT_EQ(Policy::parse("full").budget_rows(), INT_MAX);
  EXPECT_THAT(refusal("full:budget=512"), AllOf(HasSubstr("full"), HasSubstr("budget=512")));
  EXPECT_THAT(refusal("full", "10%"), HasSubstr("budget=10%"));
  EXPECT_THAT(refusal("full:n_sink=3"), HasSubstr("n_sink=3"));
}

TEST(PolicySpec, EveryOtherMethodNeedsABudget) {
  for (const Method& method : kMethods) {
    if (method.make != nullptr) {
      EXPECT_THAT(refusal(std::string(method.name)),
                  HasSubstr("needs a budget, for example budget=512"));
    }
  }
}

TEST(PolicySpec, UnknownMethodNamesTheNearestAndAll) {
  EXPECT_THAT(
      refusal("knrom:budget=5"),
      AllOf(HasSubstr("unknown method 'knrom'"), HasSubstr("did you mean 'knorm'"),
            HasSubstr("cam@proxy, capkv, chunkkv@proxy, compactor, cur, expected-attention, finch, "
                      "full, h2o, h2o@proxy, "
                      "keydiff, keyformer, keyformer@proxy, knorm, kvzip, lagkv, leverage, "
                      "noncausal, pyramid@proxy, "
                      "qfilters, qfilters@keysvd, quest, random, rkv, scissorhands, snapkv, "
                      "snapkv@proxy, squeeze@proxy, streaming, tova, tova@proxy")));
  EXPECT_THAT(refusal("cornucopia:budget=5"),
              AllOf(HasSubstr("'cornucopia'"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal(""), HasSubstr("unknown method ''"));
}

TEST(PolicySpec, UnknownOptionNamesTheNearestAndAll) {
  EXPECT_THAT(refusal("knorm:budgte=512"), HasSubstr("did you mean 'budget'"));
  EXPECT_THAT(refusal("knorm:budget=512,n-sink=3"),
              AllOf(HasSubstr("unknown option 'n-sink'"), HasSubstr("did you mean 'n_sink'"),
                    HasSubstr("allowed: preset, budget, n_sink, n_recent, protect, slack, "
                              "positions, keep")));
  EXPECT_THAT(refusal("streaming:budget=512,keep=low"), HasSubstr("unknown option 'keep'"));
}

TEST(PolicySpec, ValuesOutOfRangeAreRefusedWithTheRange) {
  EXPECT_THAT(refusal("knorm:budget=512,n_sink=-1"),
              AllOf(HasSubstr("n_sink=-1 is out of range"), HasSubstr("0 to 1048576")));
  EXPECT_THAT(refusal("knorm:budget=512,n_recent=-2"), HasSubstr("-1 to 16777216"));
  EXPECT_THAT(refusal("knorm:budget=512,slack=99999999999"), HasSubstr("out of range"));
  for (const char* value : {"4.0", "x", "4x", "0x4", "nan", "1e2"}) {
    EXPECT_THAT(refusal(std::string("knorm:budget=512,n_sink=") + value),
                HasSubstr("is not a whole number"));
  }
  EXPECT_THAT(refusal("knorm:budget=512,keep=lowest"),
              AllOf(HasSubstr("keep=lowest"), HasSubstr("low|high")));
}

TEST(PolicySpec, AllProblemsAreReportedAtOnce) {
  EXPECT_THAT(
      refusal("knorm:budget=0,n_sink=-1,keep=both,sede=3,,slack"),
      AllOf(HasSubstr("budget '0'"), HasSubstr("n_sink=-1"), HasSubstr("keep=both"),
            HasSubstr("'sede'"), HasSubstr("option 5 is empty"), HasSubstr("option 6 'slack'")));
  EXPECT_THAT(refusal("nrom:n_sink=x"),
              AllOf(HasSubstr("'nrom'"), HasSubstr("n_sink=x"), Not(HasSubstr("budget"))));
}

TEST(PolicySpec, ProtectionThatFillsTheBudgetIsRefusedBeforeAnythingRuns) {
  EXPECT_THAT(refusal("knorm:budget=16,n_sink=4,n_recent=12"),
              AllOf(HasSubstr("n_sink 4"), HasSubstr("n_recent 12"), HasSubstr("16 rows")));
  EXPECT_THAT(refusal("knorm:budget=4"), AllOf(HasSubstr("n_sink 4"), HasSubstr("4 rows")));
  EXPECT_EQ(Policy::parse("knorm:budget=17,n_sink=4,n_recent=12").budget_rows(), 17);
}

TEST(PolicySpec, AllocatorsAreEchoedLayersFirstAndUniformNot) {
  EXPECT_EQ(canonical("knorm+adakv:budget=512"), "knorm+adakv:budget=512");
  EXPECT_EQ(canonical(" knorm + adakv + pyramid :budget=512,beta=20,budget_floor=0.5,keep=high"),
            "knorm+pyramid+adakv:budget=512,keep=high,budget_floor=0.5");
  EXPECT_EQ(canonical("random+pool:budget=9,seed=3"), "random+pool:budget=9,seed=3");
  EXPECT_EQ(canonical("knorm+uniform:budget=512"), "knorm:budget=512");
  EXPECT_EQ(canonical("knorm+pyramid", "10%"), "knorm+pyramid:budget=10%");
}

TEST(PolicySpec, UnknownAllocatorsNameTheNearestAndAll) {
  EXPECT_THAT(refusal("knorm+adakvv:budget=512"),
              AllOf(HasSubstr("unknown transform, allocator, merger or reader 'adakvv'"),
                    HasSubstr("did you mean 'adakv'"),
                    HasSubstr("adakv, cake, pool, pyramid, pyramid@seed, roles, simlayer, squeeze, "
                              "squeeze@seed, table, uniform")));
  EXPECT_THAT(refusal("knorm+knorm:budget=512"), HasSubstr("'knorm' is a method"));
  EXPECT_THAT(refusal("adakv+knorm:budget=512"),
              AllOf(HasSubstr("'adakv' is an allocator"), HasSubstr("knorm+adakv")));
  EXPECT_THAT(refusal("knorm+:budget=512"), HasSubstr("nothing stands after a '+'"));
}

TEST(PolicySpec, AllocatorsThatDecideTheSameAreRefused) {
  EXPECT_THAT(refusal("knorm+adakv+pool:budget=512"),
              AllOf(HasSubstr("'adakv' and 'pool'"), HasSubstr("over its heads")));
  EXPECT_THAT(refusal("knorm+pyramid+pool:budget=512"),
              AllOf(HasSubstr("'pyramid' and 'pool'"), HasSubstr("over the layers")));
  EXPECT_THAT(refusal("knorm+adakv+adakv:budget=512"), HasSubstr("'adakv' and 'adakv'"));
  EXPECT_THAT(refusal("knorm+uniform+pyramid:budget=512"), HasSubstr("'uniform' and 'pyramid'"));
  EXPECT_THAT(refusal("full+adakv"),
              AllOf(HasSubstr("full keeps every row"), HasSubstr("'adakv'")));
}

TEST(PolicySpec, OptionsOfAnAllocatorNeedTheAllocator) {
  EXPECT_THAT(refusal("knorm:budget=512,beta=2"), HasSubstr("unknown option 'beta'"));
  EXPECT_THAT(refusal("knorm+adakv:budget=512,budget_flor=1"),
              HasSubstr("did you mean 'budget_floor'"));
  EXPECT_THAT(refusal("knorm+adakv:budget=512,budget_floor=1.5"),
              HasSubstr("budget_floor=1.5 is out of range (allowed: 0 to 1)"));
  EXPECT_THAT(refusal("knorm+pyramid:budget=512,beta=0.5"), HasSubstr("allowed: 1 to 1"));
}

TEST(PolicySpec, PercentAndBytesAreResolvedWithThePolicysOwnProtection) {
  Policy policy = Policy::parse("knorm:budget=10%,n_sink=3");
  EXPECT_FALSE(policy.is_resolved());
  policy.resolve({.n_document = 1000, .n_extra = 20, .n_sink = 999, .n_recent = 999});
  EXPECT_EQ(policy.budget_rows(), 120);
  EXPECT_EQ(policy.n_recent(), 30);

  Policy small = Policy::parse("knorm:budget=4KiB,n_recent=12");
  EXPECT_THAT(test::error_of(ErrorCode::kInvalidArgument,
                             [&] { small.resolve({.row_bytes = 64, .n_heads = 4}); }),
              AllOf(HasSubstr("n_sink 4"), HasSubstr("n_recent 12"), HasSubstr("16 rows")));
}

TEST(PolicySpec, AnyTextIsReadOrRefused) {
  constexpr std::string_view kPieces[] = {
      "knorm",  "full",     "random",   "streaming", ":",     ",",          "=",   "budget",
      "n_sink", "n_recent", "keep",     "preset",    "paper", "low",        "512", "-1",
      "10%",    "64MiB",    " ",        "+",         ".",     "9999999999", "\n",  "",
      "é",      "adakv",    "+pyramid", "+pool",     "beta"};
  std::mt19937 random(3);
  int n_read = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string spec = trial % 2 == 0 ? "knorm:budget=" : "";
    for (int i = 0; i < trial % 12; ++i) {
      spec += kPieces[random() % std::size(kPieces)];
    }
    try {
      const Policy policy = Policy::parse(spec);
      ASSERT_EQ(canonical(policy.spec()), policy.spec()) << spec;
      ++n_read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << spec;
    }
  }
  EXPECT_GT(n_read, 100);
}

TEST(Options, DescriptionsComeFromTheVisitors) {
  const std::vector<OptionDescription> common = describe_policy_options();
  EXPECT_THAT(common, Each(Field(&OptionDescription::help, Not(""))));
  ASSERT_EQ(common.size(), 7U);
  EXPECT_EQ(common[2].name, "n_sink");
  EXPECT_EQ(common[2].type, "int");
  EXPECT_EQ(common[2].default_value, "4");
  EXPECT_EQ(common[2].range, "0 to 1048576");

  const std::vector<OptionDescription> knorm = describe_options(find_method("knorm"));
  ASSERT_EQ(knorm.size(), 1U);
  EXPECT_EQ(knorm[0].name, "keep");
  EXPECT_EQ(knorm[0].type, "choice");
  EXPECT_EQ(knorm[0].default_value, "low");
  EXPECT_EQ(knorm[0].range, "low|high");
  EXPECT_THAT(describe_options(find_method("full")), ElementsAre());
  EXPECT_THAT(describe_options(find_method("random")),
              Contains(Field(&OptionDescription::name, "seed")));
}

struct EveryKind {
  float share = 0.25F;
  bool is_on = false;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(share, "share", 0.0F, 1.0F, "a share");
    v(is_on, "is_on", "a switch");
  }
};

TEST(Options, FloatsAndSwitchesAreRead) {
  OptionReader reader({{"share", "0.5"}, {"is_on", "true"}});
  const EveryKind options = read_options<EveryKind>(reader);
  EXPECT_EQ(options.share, 0.5F);
  EXPECT_TRUE(options.is_on);
  EXPECT_THAT(reader.problems(), ElementsAre());
  EXPECT_EQ(format_spec("m", reader.options()), "m:share=0.5,is_on=true");
  EXPECT_EQ(reader.options()[0].description.range, "0 to 1");
  EXPECT_EQ(reader.options()[0].description.default_value, "0.25");
}

TEST(Options, FloatsAndSwitchesThatAreNotAllowedLeaveTheDefault) {
  for (const char* value : {"1.5", "-0.1", "nan", "inf", "1e999", "abc", "0.5x"}) {
    OptionReader reader({{"share", value}, {"is_on", "yes"}});
    const EveryKind options = read_options<EveryKind>(reader);
    EXPECT_EQ(options.share, 0.25F);
    EXPECT_FALSE(options.is_on);
    EXPECT_THAT(reader.problems(), ElementsAre(AllOf(HasSubstr("share="), HasSubstr("0 to 1")),
                                               HasSubstr("is_on=yes")));
  }
}

}  // namespace
}  // namespace winnow::policy
