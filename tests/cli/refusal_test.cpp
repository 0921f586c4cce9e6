// What a user can get wrong beside the flags: prompts, budgets, files.

#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "cli/winnow_program.h"
#include "kernels/device_step.h"

namespace winnow::test {
namespace {

void expect_run_refused(const Args& args, int status, const std::vector<std::string>& parts,
                        const std::string& input = "") {
  expect_refused(run_winnow(tiny_run(args), input), status, parts);
}

// --- GPUs

TEST(RefusedGpu, WhereThereIsNone) {
  if (!kernels::why_no_device().empty()) {
    const std::string reason = kernels::why_no_device();
    expect_run_refused({"-p", "hello", "-ngl", "all"}, kUnsupported, {reason});
    for (const Args& verb : {Args{"bench"}, Args{"eval", "niah", "-o", temporary_path("of-no-gpu")},
                             Args{"tune", "-f", document(50)}}) {
      expect_refused(run_winnow(joined(verb, {"-m", tiny_model(), "-ngl", "all"})), kUnsupported,
                     {reason});
    }
  }
}

TEST(RefusedGpu, SomeOfTheLayers) {
  expect_run_refused({"-p", "hello", "-ngl", "1"}, kInvalidArgument,
                     {"--gpu-layers 1", "0, all", "at least 2"});
  expect_run_refused({"-p", "hello", "--gpu-layers", "many"}, kInvalidArgument, {"many"});
}

TEST(RefusedGpu, CachesOfAnotherMemory) {
  expect_run_refused({"-p", "hello", "-ngl", "all", "--save-cache", "cache.winnow"}, kUnsupported,
                     {"--gpu-layers", "-ngl 0"});
}

// --- prompts

TEST(RefusedPrompt, Missing) {
  expect_run_refused({}, kInvalidArgument, {"no prompt", "-p", "-f"});
}

TEST(RefusedPrompt, Empty) {
  expect_run_refused({"-p", ""}, kInvalidArgument, {"the prompt (-p) is empty"});
}

TEST(RefusedPrompt, EmptyDocument) {
  expect_run_refused({"-f", write_text("empty.txt", "")}, kInvalidArgument,
                     {"the document (-f) is empty"});
}

TEST(RefusedPrompt, BlankDocument) {
  expect_run_refused({"-f", write_text("blank.txt", " \n\t\r\n \n")}, kInvalidArgument,
                     {"the document (-f)", "white space"});
}

TEST(RefusedPrompt, EmptyDocumentBesideAQuestion) {
  expect_run_refused({"-f", "-", "-p", "What does it say?"}, kInvalidArgument,
                     {"the document (-f) is empty"});
}

TEST(RefusedPrompt, EmptyQuestionBesideADocument) {
  expect_run_refused({"-f", document(10), "-p", " "}, kInvalidArgument,
                     {"the prompt (-p) is empty"});
}

TEST(RefusedPrompt, BeyondTheContextUnlessPermitted) {
  const Args args{"-f", document(1500), "--no-chat", "-n", "1", "-c", "100"};
  const Outcome refused = run_winnow(tiny_run(args));
  const int n_prompt =
      json_of(tiny_run(joined(args, {"--allow-beyond-context", "--json"})))["n_prompt"];
  expect_refused(
      refused, kInvalidArgument,
      {std::to_string(n_prompt) + " tokens", "the context 100", "--allow-beyond-context"});
}

TEST(RefusedPrompt, ContextBeyondTraining) {
  expect_run_refused({"-p", "hello", "-c", "4097"}, kInvalidArgument,
                     {"4097", "4096", "--allow-beyond-context"});
}

TEST(RefusedPrompt, DocumentIsNotUtf8) {
  const std::string path = write_text("latin1.txt", "caf\xe9 au lait");
  expect_run_refused({"-f", path}, kBadData, {"the document (-f)", "UTF-8", "byte 3 of 12"});
}

TEST(RefusedPrompt, QuestionIsNotUtf8) {
  expect_run_refused({"-f", document(10), "-p", "x\xff"}, kBadData,
                     {"the prompt (-p)", "UTF-8", "byte 1 of 2"});
}

TEST(RefusedPrompt, DocumentIsMissing) {
  expect_run_refused({"-f", "/no/such/document"}, kNotFound,
                     {"'/no/such/document'", "No such file"});
}

TEST(RefusedPrompt, DocumentIsADirectory) {
  expect_run_refused({"-f", "/"}, kIo, {"'/'", "directory"});
}

TEST(RefusedPrompt, StandardInputCannotBeRead) {
  const Outcome outcome =
      run_winnow(tiny_run({"-f", "-", "-p", "Why?"}), ProgramOptions{.input_path = "/"});
  expect_refused(outcome, kIo, {"cannot read 'standard input'"});
}

TEST(RefusedPrompt, BeforeQuestionWithoutAQuestion) {
  expect_run_refused({"-f", document(10), "--budget", "8", "--evict", "before-question"},
                     kInvalidArgument, {"before-question", "-f", "-p"});
}

TEST(RefusedPrompt, PerChunkInLayerMajorOrder) {
  expect_run_refused(
      {"-p", "hello", "--budget", "8", "--evict", "per-chunk", "--prefill", "layer-major"},
      kInvalidArgument, {"per-chunk", "chunk-major"});
}

TEST(RefusedPrompt, LegacyOrderWhereItCannotBe) {
  const auto refused = [](const Args& args, const std::vector<std::string>& parts) {
    expect_run_refused(joined({"-p", "hello", "--legacy-order"}, args), kInvalidArgument, parts);
  };
  refused({"--policy", "snapkv:budget=8"}, {"--legacy-order", "snapkv", "attention leaves behind"});
  refused({"--budget", "8", "--prefill", "layer-major"}, {"--legacy-order", "chunk-major"});
  refused({"--budget", "8", "--evict", "per-chunk"}, {"--legacy-order", "--evict"});
  refused({"--budget", "8", "--save-cache", "never.written"}, {"--save-cache", "legacy order"});
  refused({}, {"--legacy-order", "full", "--budget"});
}

TEST(RefusedPrompt, UnknownChatTemplate) {
  expect_run_refused({"-p", "hello", "--chat-template", "chatlm"}, kUnsupported,
                     {"'chatlm'", "chatml", "--no-chat"});
}

// --- token ids

TEST(RefusedIds, Garbage) {
  for (const std::string word : {"x", "1.5", "0x10", "2147483648"}) {
    expect_run_refused({"--ids", "1," + word}, kInvalidArgument,
                       {"--ids", "'" + word + "'", "288"});
  }
}

TEST(RefusedIds, Negative) {
  expect_run_refused({"--ids", "-1"}, kInvalidArgument, {"'-1'", "0 to 288"});
}

TEST(RefusedIds, BeyondTheVocabulary) {
  expect_run_refused({"--ids", "1,289", "--dry-run"}, kInvalidArgument, {"'289'", "0 to 288"});
}

TEST(RefusedIds, None) {
  expect_run_refused({"--ids", " , "}, kInvalidArgument, {"--ids gives no token"});
}

TEST(RefusedIds, BesideAPrompt) {
  expect_run_refused({"--ids", "1", "-p", "x"}, kInvalidArgument, {"--ids", "-p"});
}

TEST(RefusedIds, BesideAChatTemplate) {
  expect_run_refused({"--ids", "1", "--chat-template", "chatml"}, kInvalidArgument,
                     {"--ids", "--chat-template"});
}

TEST(RefusedIds, MissingFile) {
  expect_run_refused({"--ids", "@/no/such/ids"}, kNotFound, {"'/no/such/ids'"});
}

// --- budgets

void expect_bad_budget(const std::string& budget, const std::vector<std::string>& parts) {
  expect_run_refused({"-p", "hello", "--budget", budget}, kInvalidArgument, parts);
}

TEST(RefusedBudget, Nothing) {
  expect_bad_budget("0", {"'0'", "above 0"});
}
TEST(RefusedBudget, Negative) {
  expect_bad_budget("-1", {"'-1'", "512", "10%", "64MiB"});
}
TEST(RefusedBudget, NoPercent) {
  expect_bad_budget("0%", {"'0%'", "above 0"});
}
TEST(RefusedBudget, MoreThanAll) {
  expect_bad_budget("101%", {"'101%'", "100%"});
}
TEST(RefusedBudget, NoNumber) {
  expect_bad_budget("abc", {"'abc'", "512", "10%", "64MiB"});
}
TEST(RefusedBudget, UnknownUnit) {
  expect_bad_budget("64XB", {"'XB'", "MiB"});
}

TEST(RefusedBudget, OneRow) {
  expect_bad_budget("1", {"n_sink 4", "budget of 1 rows", "at least 6"});
}

TEST(RefusedBudget, FewerBytesThanOneRowEach) {
  // A row is 16 f16 keys, 16 f16 values, a position and a norm; there are four heads.
  expect_run_refused({"-p", "hello", "--policy", "knorm", "--budget", "0.1KB"}, kInvalidArgument,
                     {"0.1KB", "100 bytes", "4 KV heads", "288 bytes"});
}

TEST(RefusedBudget, OneKilobyteOfRowsForSinksAndOthers) {
  expect_bad_budget("1KB", {"'1KB'", "budget of 3 rows", "at least 6"});
}

TEST(RefusedBudget, AllProtected) {
  expect_run_refused({"-p", "hello", "--policy", "knorm:budget=20,n_sink=10,n_recent=10"},
                     kInvalidArgument, {"n_sink 10", "n_recent 10", "20 rows", "21"});
}

TEST(RefusedBudget, ForTheFullCache) {
  expect_run_refused({"-p", "hello", "--policy", "full", "--budget", "20"}, kInvalidArgument,
                     {"full keeps every row", "budget=20"});
}

TEST(RefusedBudget, MissingForAPolicy) {
  expect_run_refused({"-p", "hello", "--policy", "knorm"}, kInvalidArgument,
                     {"needs a budget", "budget=512"});
}

TEST(RefusedBudget, UnknownPolicy) {
  expect_run_refused({"-p", "hello", "--policy", "knrom:budget=20"}, kInvalidArgument,
                     {"'knrom'", "did you mean 'knorm'", "streaming"});
}

TEST(RefusedBudget, UnknownPolicyOption) {
  expect_run_refused({"-p", "hello", "--policy", "knorm:budget=20,n_snik=4"}, kInvalidArgument,
                     {"'n_snik'", "did you mean 'n_sink'"});
}

TEST(RefusedBudget, GivenTwice) {
  expect_run_refused({"-p", "x", "--policy", "knorm:budget=64", "--budget", "32"}, kInvalidArgument,
                     {"budget=64", "32"});
}

TEST(RefusedPolicy, LayersThatAreComparedInLayerMajorOrder) {
  expect_run_refused(
      {"-p", "hello", "--policy", "knorm+pool:budget=20", "--prefill", "layer-major"},
      kInvalidArgument, {"'knorm+pool:budget=20'", "chunk-major", "all layers"});
}

TEST(RefusedPolicy, UnknownAllocator) {
  expect_run_refused({"-p", "hello", "--policy", "knorm+adavk:budget=20"}, kInvalidArgument,
                     {"'adavk'", "did you mean 'adakv'", "pyramid"});
}

TEST(RefusedBudget, RatioOutOfRange) {
  for (const std::string ratio : {"1", "-0.1", "nan", "1.5"}) {
    expect_run_refused({"-p", "hello", "--compression-ratio", ratio}, kInvalidArgument,
                       {"--compression-ratio", "from 0 to below 1", ratio});
  }
}

TEST(RefusedBudget, RatioThatLeavesNothing) {
  expect_run_refused({"-p", "hello", "--compression-ratio", "0.999999999999"}, kInvalidArgument,
                     {"--compression-ratio 0.999999999999", "leaves less"});
}

TEST(RefusedBudget, RatioBesideABudget) {
  expect_run_refused({"-p", "hello", "--compression-ratio", "0.5", "--budget", "20"},
                     kInvalidArgument, {"--budget", "--compression-ratio", "give one"});
}

// --- models

void expect_bad_model(const std::string& path, int status, const std::vector<std::string>& parts) {
  expect_refused(run_winnow({"run", "-m", path, "-p", "hello", "-t", "1"}), status, parts);
}

TEST(RefusedModel, Missing) {
  expect_bad_model("/no/such/model.gguf", kNotFound, {"'/no/such/model.gguf'", "No such file"});
}

TEST(RefusedModel, Directory) {
  expect_bad_model("/", kIo, {"'/'", "directory"});
}

TEST(RefusedModel, Pipe) {
  const std::string path = temporary_path("model-pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_bad_model(path, kIo, {"model-pipe'", "not a regular file"});
}

TEST(RefusedModel, Text) {
  expect_bad_model(document(100), kBadData, {"document-100.txt'", "not a GGUF file"});
}

TEST(RefusedModel, Empty) {
  expect_bad_model(write_text("empty.gguf", ""), kBadData, {"empty.gguf'", "is empty"});
}

TEST(RefusedModel, Truncated) {
  const std::string path = temporary_path("half.gguf");
  std::filesystem::copy_file(tiny_model(), path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  expect_bad_model(path, kBadData, {"half.gguf'"});
}

TEST(RefusedModel, UnsupportedArchitecture) {
  expect_bad_model(write_tiny_model({.architecture = "mamba"}), kUnsupported,
                   {"'mamba'", "llama", "qwen2"});
}

// --- memory and output files

TEST(RefusedPlan, MoreThanAllMemoryAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  expect_run_refused({"-p", "hello", "--ignore-eos", "-c", "268435456", "-n", "1073741824",
                      "--allow-beyond-context"},
                     kResourceExhausted, {"GiB at its peak", "leaves", "--budget"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(RefusedPlan, CountsTheLogitsThatAreKept) {
  expect_run_refused({"-p", "hello", "--budget", "8", "-n", "200000000", "--allow-beyond-context",
                      "--dump-logits", temporary_path("huge")},
                     kResourceExhausted, {"kept logits", "GiB"});
}

TEST(RefusedPlan, DryRunToo) {
  expect_run_refused(
      {"-p", "hello", "-c", "268435456", "-n", "268435456", "--allow-beyond-context", "--dry-run"},
      kResourceExhausted, {"at its peak"});
}

// Refused before the run: with ids that would be refused as well, the path is what is reported.
TEST(RefusedOutput, UnwritableDumps) {
  for (const std::string flag : {"--dump-kept", "--dump-logits"}) {
    expect_run_refused({"--ids", "x", flag, "/no/such/folder/dump"}, kIo,
                       {"cannot write '/no/such/folder/dump'", "No such file"});
    expect_run_refused({"--ids", "x", flag, "/"}, kIo, {"cannot write '/'", "directory"});
  }
}

TEST(RefusedOutput, TwoDumpsInOneFile) {
  const std::string path = temporary_path("both");
  expect_run_refused({"-p", "hello", "--dump-kept", path, "--dump-logits", path}, kInvalidArgument,
                     {"--dump-kept", "--dump-logits", "both'"});
  const std::string link = temporary_path("link-to-both");
  std::ofstream(path) << "is there";
  std::filesystem::create_symlink(path, link);
  expect_run_refused({"-p", "hello", "--dump-kept", link, "--dump-logits", path}, kInvalidArgument,
                     {"--dump-kept", "--dump-logits", "link-to-both'"});
}

TEST(RefusedOutput, OverTheDocument) {
  const std::string path = write_text("read-and-written.txt", "a document");
  expect_run_refused({"-f", path, "--dump-kept", path}, kInvalidArgument,
                     {"read-and-written.txt", "would be lost"});
  EXPECT_EQ(std::filesystem::file_size(path), 10U);
}

TEST(RefusedOutput, FullDisk) {
  struct stat status {};
  if (::stat("/dev/full", &status) != 0) {
    GTEST_SKIP() << "there is no /dev/full";
  }
  for (const Args& args : {Args{"methods"},
                           {"methods", "--json"},
                           {"--help"},
                           tiny_run({"-p", "hi", "-n", "4", "-q", "--ignore-eos"}),
                           tiny_run({"-p", "hi", "-n", "4", "--json"}),
                           tiny_run({"-p", "hi", "--dry-run"})}) {
    const Outcome outcome = run_winnow(args, ProgramOptions{.output_path = "/dev/full"});
    expect_refused(outcome, kIo, {"standard output", "No space left"});
  }
}

}  // namespace
}  // namespace winnow::test
