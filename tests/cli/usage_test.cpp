// The command line itself: verbs, flags, values out of range.

#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

void expect_usage_error(const Args& args, const std::vector<std::string>& parts) {
  expect_refused(run_winnow(args), kInvalidArgument, parts);
}

// Refused on top of a prompt that would be fine.
void expect_bad_flags(const Args& flags, const std::vector<std::string>& parts) {
  expect_usage_error(joined(tiny_run({"-p", "hello"}), flags), parts);
}

TEST(Usage, NeedsAVerb) {
  expect_usage_error({}, {"a verb is needed", "winnow --help"});
}

TEST(Usage, SuggestsTheNearestVerb) {
  expect_usage_error(
      {"rnu", "-m", "x"},
      {"'rnu'", "did you mean 'run'",
       "run, compress, bench, eval, report, tune, calibrate, score, roles, train-probe, methods"});
}

TEST(Usage, ListsTheVerbsWhereNoneIsNear) {
  expect_usage_error({"transmogrify"},
                     {"unknown verb 'transmogrify' (allowed: run, compress, "
                      "bench, eval, report, tune, calibrate, score, roles, train-probe, methods)"});
}

TEST(Usage, SuggestsTheNearestOption) {
  expect_bad_flags({"--polcy", "knorm:budget=8"}, {"'--polcy'", "did you mean '--policy'"});
}

TEST(Usage, SuggestsTheNearestOptionOfAnAssignment) {
  expect_bad_flags({"--buget=8"}, {"unknown option '--buget'", "did you mean '--budget'"});
}

TEST(Usage, SuggestsNoOneLetterOption) {
  expect_bad_flags({"-x"}, {"unknown option '-x';", "winnow run --help"});
}

TEST(Usage, SuggestsForEveryVerb) {
  expect_usage_error({"methods", "--josn"}, {"'--josn'", "did you mean '--json'"});
}

TEST(Usage, RefusesLooseWords) {
  expect_bad_flags({"extra"}, {"unexpected argument 'extra'"});
}

TEST(Usage, NeedsAModel) {
  expect_usage_error({"run", "-p", "hello"}, {"--model is required"});
}

TEST(Usage, NeedsAValue) {
  expect_usage_error(tiny_run({"-p"}), {"--prompt", "missing"});
}

TEST(Usage, RefusesARepeatedOption) {
  expect_bad_flags({"-p", "again"}, {"--prompt", "received 2"});
}

TEST(Usage, RefusesZeroThreads) {
  expect_usage_error({"run", "-m", tiny_model(), "-p", "hello", "-t", "0"},
                     {"--threads", "Value 0", "-1", "1 to 512"});
}

TEST(Usage, RefusesMoreThreadsThanGgmlKnows) {
  expect_usage_error({"run", "-m", tiny_model(), "-p", "hello", "-t", "100000"},
                     {"--threads", "100000", "1 to 512"});
}

TEST(Usage, RefusesAnEmptyBatch) {
  expect_bad_flags({"-b", "0"}, {"--batch-size", "Value 0"});
}

TEST(Usage, RefusesANegativeLength) {
  expect_bad_flags({"-n", "-2"}, {"--predict", "Value -2", "-1 to"});
}

TEST(Usage, RefusesALengthThatIsNoNumber) {
  expect_bad_flags({"-n", "many"}, {"--predict", "many"});
}

TEST(Usage, RefusesANegativeTemperature) {
  expect_bad_flags({"--temp", "-1"}, {"--temp", "-1", "0.0"});
}

TEST(Usage, RefusesATemperatureThatIsNoNumber) {
  expect_bad_flags({"--temp", "nan"}, {"--temp", "nan", "not a number"});
  expect_bad_flags({"--top-p", "-NaN"}, {"--top-p"});
}

TEST(Usage, RefusesASeedThatDoesNotFit) {
  expect_bad_flags({"--seed", "4294967296"}, {"--seed", "4294967295"});
}

TEST(Usage, RefusesEmptyValues) {
  for (const char* flag : {"--budget", "--policy", "--compression-ratio", "--dump-kept",
                           "--dump-logits", "--chat-template"}) {
    expect_bad_flags({flag, ""}, {flag, "the value is empty"});
  }
}

TEST(Usage, RefusesALogitsFlagWithoutAFile) {
  expect_bad_flags({"--logits-all"}, {"--logits-all requires --dump-logits"});
}

TEST(Usage, RefusesATemplateThatIsNotUsed) {
  expect_bad_flags({"--no-chat", "--chat-template", "chatml"}, {"--no-chat", "--chat-template"});
}

TEST(Usage, ListsTheNamesOfEvict) {
  expect_bad_flags({"--evict", "never"}, {"'never'", "after-prompt, before-question, per-chunk"});
}

TEST(Usage, ListsTheNamesOfPrefill) {
  expect_bad_flags({"--prefill", "fast"}, {"'fast'", "auto, layer-major, chunk-major"});
}

TEST(Usage, ListsTheNamesOfWeights) {
  expect_bad_flags({"--weights", "q4"}, {"'q4'", "auto, file, f16, bf16, f32, prompt-f16"});
}

TEST(Usage, ListsTheNamesOfRowTypes) {
  expect_bad_flags({"--cache-type-k", "q8"}, {"'q8'", "f32, f16, bf16"});
  expect_bad_flags({"--cache-type-v", "q8"}, {"'q8'", "f32, f16, bf16"});
}

TEST(Usage, AcceptsAnyThreadCountThatIsAllowed) {
  EXPECT_EQ(run_winnow({"run", "-m", tiny_model(), "-p", "hi", "-n", "1", "-t", "-1"}).status, 0);
  EXPECT_EQ(run_winnow({"run", "-m", tiny_model(), "-p", "hi", "-n", "1", "-t", "3"}).status, 0);
}

TEST(Usage, HelpAndVersionSucceed) {
  for (const Args& args : {Args{"--help"}, {"run", "--help"}, {"methods", "-h"}}) {
    const Outcome outcome = run_winnow(args);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("Usage: winnow"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.err, "");
  }
  const Outcome version = run_winnow({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.rfind("winnow ", 0), 0U) << version.out;
}

TEST(Usage, TakesTextThatLooksLikeSomethingElse) {
  for (const std::string text : {"[a,b]", "-1", "\"quoted\"", "a,b", "--", "50%", "{x}"}) {
    const Outcome outcome = run_winnow(tiny_run({"--no-chat", "-n", "0", "--json", "-p", text}));
    ASSERT_EQ(outcome.status, 0) << text << ": " << outcome.err;
    const int n_tokens = nlohmann::json::parse(outcome.out)["n_document"];
    EXPECT_EQ(n_tokens, static_cast<int>(text.size())) << text;  // none of these letters join
  }
}

TEST(PolicyAuto, GoesByWhenRowsAreEvictedAndWhetherThereIsAQuestion) {
  const std::string text = document(300);
  const auto spec_of = [&](const Args& args) {
    return tiny_json(joined({"-f", text, "--dry-run"}, args))["policy"].get<std::string>();
  };
  EXPECT_EQ(spec_of({"--policy", "auto", "--budget", "90", "-p", "what"}),
            "snapkv:budget=90,obs_window=16");
  EXPECT_EQ(spec_of({"--policy", "auto+adakv:n_sink=2", "--budget", "90", "-p", "what"}),
            "snapkv+adakv:budget=90,n_sink=2,obs_window=16");
  EXPECT_EQ(spec_of({"--policy", "auto:obs_window=8", "--budget", "90", "-p", "what"}),
            "snapkv:budget=90,obs_window=8");
  EXPECT_EQ(spec_of({"--policy", "auto:n_sink=2", "--budget", "90", "-p", "what", "--evict",
                     "before-question"}),
            "keydiff:budget=90,n_sink=2");
  EXPECT_EQ(spec_of({"--policy", "auto+adakv:budget=90", "--evict", "per-chunk"}),
            "keydiff+adakv:budget=90");
  EXPECT_EQ(spec_of({"--budget", "50%", "-p", "what", "--roles", "json"}),
            "snapkv+roles:budget=50%,protect=template+question,obs_window=16,kernel=15");
  EXPECT_EQ(spec_of({"--budget", "90", "-p", "what", "--roles", "none"}),
            "snapkv:budget=90,obs_window=16");
  EXPECT_EQ(spec_of({"--budget", "90"}), "expected-attention:budget=90");
  EXPECT_EQ(spec_of({}), "full");
  expect_refused(run_winnow(tiny_run({"-f", text, "--policy", "auto"})), kInvalidArgument,
                 {"budget"});
}

}  // namespace
}  // namespace winnow::test
