// Signals, closed pipes and too little address space: the program ends in order.

#include <csignal>
#include <filesystem>

#include "cli/winnow_program.h"
#include "support/models.h"
#include "support/sanitizers.h"

namespace winnow::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A prompt of many steps that takes much longer than a signal.
Args long_prompt() {
  return tiny_run({"-f", document(30000), "--allow-beyond-context", "-b", "8", "-n", "4"});
}

TEST(Interrupt, DuringThePromptIsAnError) {
  for (const Args& order : {Args{}, {"--budget", "64"}}) {
    Program program(WINNOW_PROGRAM, joined(long_prompt(), order), {});
    program.await_handler(SIGINT);
    program.send(SIGINT);
    expect_refused(program.wait(), kCancelled, {"cancelled while reading the prompt"});
  }
}

Args long_answer() {
  return tiny_run({"-p", "hello", "-n", "10000000", "--allow-beyond-context", "--budget", "64",
                   "--ignore-eos"});
}

TEST(Interrupt, DuringTheAnswerKeepsWhatIsThere) {
  Program program(WINNOW_PROGRAM, long_answer(), {});
  program.await_output(100);
  program.send(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.status, kCancelled);
  ASSERT_GE(outcome.out.size(), 100U);
  EXPECT_EQ(outcome.out.back(), '\n');
  EXPECT_NE(outcome.err.find("stopped by cancelled"), std::string::npos) << outcome.err;
}

TEST(Interrupt, DuringTheAnswerGivesWholeJson) {
  Program program(WINNOW_PROGRAM, joined(long_answer(), {"--json"}), {});
  program.await_handler(SIGINT);
  program.send(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, kCancelled);
  if (outcome.out.empty()) {  // it was still at the prompt
    expect_refused(outcome, kCancelled, {"cancelled while reading the prompt"});
    return;
  }
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["stop"], "cancelled");
}

TEST(Interrupt, TwiceEndsAtOnce) {
  Program program(WINNOW_PROGRAM, long_prompt(), {});
  program.await_handler(SIGINT);
  program.send(SIGINT);
  program.send(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_TRUE(outcome.status == kCancelled || outcome.signal == SIGINT)
      << outcome.status << " " << outcome.signal;
}

TEST(ClosedPipe, EndsTheProgram) {
  const Outcome outcome = run_winnow(long_answer(), ProgramOptions{.is_output_closed = true});
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.signal == SIGPIPE || outcome.status == kIo)
      << outcome.status << " " << outcome.signal << " " << outcome.err;
}

TEST(LostModel, EndsTheProgramWithAMessage) {
  const std::string path = temporary_path("shrinking.gguf");
  std::filesystem::copy_file(tiny_model(), path);
  Args args = long_answer();
  std::replace(args.begin(), args.end(), tiny_model(), path);
  Program program(WINNOW_PROGRAM, args, {});
  program.await_output(100);
  std::filesystem::resize_file(path, 1000);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.status, kIo);
  EXPECT_NE(outcome.err.find("winnow: error: the model's file or the cache's was cut off"),
            std::string::npos)
      << outcome.err;
}

// --- address space

// Under any limit a run works, or says in one line what it lacks.
void expect_orderly(const Args& args, size_t limit_bytes) {
  const Outcome outcome = run_winnow(args, ProgramOptions{.address_space_bytes = limit_bytes});
  SCOPED_TRACE(std::to_string(limit_bytes / 1024) + " KiB");
  EXPECT_EQ(outcome.signal, 0) << outcome.err;
  if (outcome.status == 0) {
    EXPECT_FALSE(outcome.out.empty());
    return;
  }
  expect_refused(outcome, kResourceExhausted, {});
}

// Whether the limits tried reach from refused to enough.
void expect_both_ends(const Args& args, size_t low_bytes, size_t high_bytes) {
  const auto with_limit = [&](size_t bytes) {
    return run_winnow(args, ProgramOptions{.address_space_bytes = bytes}).status;
  };
  EXPECT_EQ(with_limit(low_bytes), kResourceExhausted);
  EXPECT_EQ(with_limit(high_bytes), 0);
}

class AddressSpace : public testing::Test {
 protected:
  void SetUp() override {
    if (is_sanitized()) {
      GTEST_SKIP() << "the sanitizers reserve terabytes of address space";
    }
  }
};

TEST_F(AddressSpace, OfATinyModel) {
  const Args args = tiny_run({"-f", document(200), "--budget", "64", "-n", "4", "--ignore-eos"});
  // Below 31 MiB the libraries themselves do not load, or end the process with their first allocation.
  for (size_t limit = 31 * kMiB; limit <= 64 * kMiB; limit += 3 * kMiB) {
    expect_orderly(args, limit);
  }
  expect_both_ends(args, 31 * kMiB, 256 * kMiB);
}

TEST_F(AddressSpace, OfManyThreads) {
  const Args args{"run", "-m", tiny_model(), "-t", "16", "-p", "hello", "-n", "1", "--ignore-eos"};
  for (size_t limit = 32 * kMiB; limit <= 256 * kMiB; limit += 16 * kMiB) {
    expect_orderly(args, limit);
  }
  const Outcome outcome = run_winnow(args, ProgramOptions{.address_space_bytes = 96 * kMiB});
  expect_refused(outcome, kResourceExhausted, {"of 16 threads can be started", "-t"});
  expect_both_ends(args, 64 * kMiB, 1024 * kMiB);
}

TEST_F(AddressSpace, OfARealModel) {
  WINNOW_FIND_MODEL(path, kSmolLm2);
  const Args args{"run", "-m", path, "-t", "1", "-p", "hello", "-n", "1"};
  for (const size_t limit : {64, 100, 112, 120, 128, 136, 144, 152, 160, 192, 256, 512, 1024}) {
    expect_orderly(args, limit * kMiB);
  }
  expect_both_ends(args, 64 * kMiB, 1024 * kMiB);
}

TEST_F(AddressSpace, TooLittleForThePlanIsSaidWithNumbers) {
  const Outcome outcome = run_winnow(
      tiny_run({"-f", document(3000), "--allow-beyond-context", "-c", "10000000", "-n", "1000000"}),
      ProgramOptions{.address_space_bytes = 128 * kMiB});
  expect_refused(outcome, kResourceExhausted, {"of address space", "ulimit -v", "leaves", "MiB"});
}

}  // namespace
}  // namespace winnow::test
