// Caches in files: compress once, ask often, go on later.

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "cli/winnow_program.h"
#include "support/models.h"

namespace winnow::test {
namespace {

using nlohmann::json;

std::string cache_path() {
  static int n = 0;
  return temporary_path("cache-" + std::to_string(++n));
}

// The path of a cache that compress makes on the tiny model.
std::string compressed(const Args& args) {
  std::string path = cache_path();
  const Outcome outcome =
      run_winnow(joined({"compress", "-m", tiny_model(), "-t", "1", "-o", path}, args));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  return path;
}

struct Answer {
  json report;
  std::string logits;  // the .npy file
  json kept;
};

Answer ask(const Args& args) {
  const std::string logits = temporary_path("logits.npy");
  const std::string kept = temporary_path("kept.json");
  json report = tiny_json(joined({"-n", "12", "--dump-logits", logits, "--dump-kept", kept}, args));
  return {std::move(report), read_text_file(logits), json::parse(read_text_file(kept))};
}

void expect_cache_refused(const Args& args, int status, const std::vector<std::string>& parts) {
  expect_refused(run_winnow(tiny_run(args)), status, parts);
}

TEST(CacheFile, TwoQuestionsAreAnsweredAsWithoutIt) {
  for (const Args& policy : {Args{"--budget", "60"}, Args{"--policy", "streaming:budget=20%"},
                             Args{"--policy", "knorm+adakv:budget=60", "--cache-type-k", "f32"}}) {
    const std::string cache = compressed(joined({"-f", document(150)}, policy));
    const std::string bytes = read_text_file(cache);
    for (const char* question : {"Why?", "What is it about?"}) {
      const Answer direct =
          ask(joined({"-f", document(150), "-p", question, "--evict", "before-question"}, policy));
      const Answer cached = ask({"--cache", cache, "-p", question});
      EXPECT_EQ(cached.logits, direct.logits);
      EXPECT_EQ(cached.kept, direct.kept);
      EXPECT_EQ(direct.report["cached_tokens"], 0);
      EXPECT_GT(cached.report["cached_tokens"], 150);
      for (const char* key :
           {"answer", "policy", "budget_rows", "evict", "prefill", "n_prompt", "n_document",
            "positions_fed", "rows_evicted", "kept_rows", "evicted_during_prompt", "row_bytes"}) {
        EXPECT_EQ(cached.report[key], direct.report[key]) << key;
      }
      // The document given again is not read again.
      const Answer again = ask({"--cache", cache, "-f", document(150), "-p", question});
      EXPECT_EQ(again.logits, direct.logits);
      EXPECT_EQ(again.report["cached_tokens"], cached.report["cached_tokens"]);
    }
    EXPECT_EQ(read_text_file(cache), bytes);
  }
}

TEST(CacheFile, CompressReportsWhatItKept) {
  const std::string path = cache_path();
  const Args args{"compress", "-m", tiny_model(), "-t",    "1",        "-f", document(150),
                  "-o",       path, "--policy",   "knorm", "--budget", "60", "--json"};
  const json plan = json_of(joined(args, {"--dry-run"}));
  EXPECT_FALSE(std::filesystem::exists(path));
  const json report = json_of(args);
  EXPECT_EQ(report["cache_file"]["path"], path);
  EXPECT_EQ(report["cache_file"]["bytes"], std::filesystem::file_size(path));
  EXPECT_EQ(report["policy"], "knorm:budget=60");
  EXPECT_EQ(report["evict"], "before-question");
  EXPECT_EQ(report["kept_rows"]["max"], 60);
  EXPECT_EQ(report["positions_fed"], report["n_prompt"]);
  EXPECT_EQ(plan["kv_bytes"]["after_prompt"], report["kv_bytes"]["now"]);
  EXPECT_FALSE(report.contains("answer"));
  EXPECT_FALSE(report.contains("cached_tokens"));
  const Outcome text = run_winnow(
      {"compress", "-m", tiny_model(), "-t", "1", "-f", document(150), "-o", path, "--force"});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.err.find("0 rows evicted (before-question)"), std::string::npos) << text.err;
  EXPECT_NE(text.err.find("cache written to '" + path + "'"), std::string::npos) << text.err;
}

TEST(CacheFile, AConversationGoesOnFromFileToFile) {
  const Args policy{"--policy", "knorm", "--budget", "50"};
  const std::string first = cache_path();
  const std::string second = cache_path();
  const json one = tiny_json(
      joined({"-f", document(100), "-p", "Why?", "-n", "5", "--save-cache", first}, policy));
  const json two =
      tiny_json({"--cache", first, "-p", "And then?", "-n", "5", "--save-cache", second});
  // The answer's last token is fed with the next turn.
  EXPECT_EQ(two["cached_tokens"], one["positions_fed"]);
  EXPECT_EQ(two["kept_rows"]["max"], 50);
  const json three = tiny_json({"--cache", second, "-n", "4"});  // the answer goes on
  EXPECT_EQ(three["cached_tokens"], two["positions_fed"]);
  EXPECT_EQ(three["n_prompt"], two["positions_fed"]);
  const json whole = tiny_json({"--cache", first, "-p", "And then?", "-n", "9"});
  EXPECT_EQ(two["answer"].get<std::string>() + three["answer"].get<std::string>(),
            whole["answer"].get<std::string>());
  EXPECT_EQ(three["positions_fed"], whole["positions_fed"]);
  EXPECT_EQ(three["kept_rows"], whole["kept_rows"]);
}

TEST(CacheFile, OnlyWhatFollowsTheStoredPrefixIsRead) {
  const std::string cache = compressed({"-f", document(100), "--no-chat"});
  const json direct = tiny_json({"-f", document(140), "-p", "Why?", "--no-chat", "-n", "6"});
  const json cached = tiny_json({"--cache", cache, "-f", document(140), "-p", "Why?", "-n", "6"});
  EXPECT_GT(cached["cached_tokens"], 90);
  EXPECT_EQ(cached["n_prompt"], direct["n_prompt"]);
  EXPECT_EQ(cached["n_document"], direct["n_document"]);
  EXPECT_EQ(cached["answer"], direct["answer"]);
  // What was evicted cannot be gone back to.
  const std::string cut = compressed({"-f", document(140), "--no-chat", "--budget", "30"});
  expect_cache_refused({"--cache", cut, "-f", document(100), "-p", "Why?"}, kInvalidArgument,
                       {"the prompt has only the first", "has lost the row"});
}

TEST(CacheFile, DryRunSaysWhatTheRunTakes) {
  const std::string cache = compressed({"-f", document(150), "--budget", "60"});
  const Args args{"--cache", cache, "-p", "Why?", "-n", "20"};
  const json plan = tiny_json(joined(args, {"--dry-run"}));
  const json report = tiny_json(args);
  EXPECT_EQ(plan["policy"], report["policy"]);
  EXPECT_EQ(plan["budget_rows"], report["budget_rows"]);
  EXPECT_EQ(plan["kv_bytes"]["peak"], report["kv_bytes"]["peak"]);
  EXPECT_EQ(plan["kv_bytes"]["full_cache"], report["kv_bytes"]["full_cache"]);
}

TEST(CacheFile, AFlagThatContradictsItIsRefusedWithBothValues) {
  const std::string cache =
      compressed({"-f", document(100), "--policy", "knorm", "--budget", "60"});
  const auto refused = [&](const Args& args, const std::vector<std::string>& parts) {
    expect_cache_refused(joined({"--cache", cache, "-p", "Why?"}, args), kInvalidArgument, parts);
  };
  refused({"--policy", "streaming"}, {"streaming:budget=60", "knorm:budget=60"});
  refused({"--policy", "full"}, {"full", "knorm:budget=60"});
  refused({"--policy", "knorm:n_sink=8"}, {"knorm:budget=60,n_sink=8", "knorm:budget=60"});
  refused({"--budget", "61"}, {"61", "60"});
  refused({"-q", "--compression-ratio", "0.5"}, {"50%", "60"});
  refused({"--cache-type-k", "f32"}, {"f32", "f16"});
  refused({"--cache-type-v", "bf16"}, {"bf16", "f16"});
  refused({"--no-chat"}, {"none (--no-chat)", "the model's own"});
  refused({"--chat-template", "chatml"}, {"'chatml'", "the model's own"});
  refused({"--rope-scale", "2"}, {"freq_scale 1", "0.5"});
  refused({"-c", "50"}, {"context 50"});
  const json same = tiny_json({"--cache", cache, "-p", "Why?", "-n", "1", "--policy", "knorm",
                               "--budget", "60", "--cache-type-k", "f16"});
  EXPECT_EQ(same["policy"], "knorm:budget=60");
}

TEST(CacheFile, OfAnotherModelOrDamagedIsRefused) {
  const std::string cache = compressed({"-f", document(20), "--budget", "16"});
  const std::string other = write_tiny_model({.seed = 5});
  expect_refused(run_winnow({"run", "-m", other, "-t", "1", "--cache", cache, "-p", "Why?"}),
                 kInvalidArgument, {cache, "another model"});
  const std::string sound = read_text_file(cache);
  const auto refused = [&](const std::string& bytes, const std::vector<std::string>& parts) {
    std::ofstream(cache, std::ios::binary) << bytes;
    expect_cache_refused({"--cache", cache, "-p", "Why?"}, kBadData, parts);
  };
  std::string flipped = sound;
  flipped[sound.size() / 2] = static_cast<char>(flipped[sound.size() / 2] ^ 4);
  refused(flipped, {cache, "damaged", "checksum"});
  refused(sound.substr(0, sound.size() - 1), {"cut off"});
  refused(sound + "x", {"appended"});
  refused("", {"empty"});
  refused(words(50), {"is not a cache file"});
  expect_cache_refused({"--cache", "/no/such/cache", "-p", "Why?"}, kNotFound, {"/no/such/cache"});
}

TEST(CacheFile, IsNotWrittenOverNorHalf) {
  const std::string cache = compressed({"-f", document(20)});
  const std::string bytes = read_text_file(cache);
  expect_cache_refused({"-f", document(30), "--save-cache", cache}, kInvalidArgument,
                       {cache, "exists", "--force"});
  expect_cache_refused({"-f", document(30), "--save-cache", "/no/such/folder/file"}, kIo,
                       {"/no/such/folder/file"});
  expect_cache_refused({"-f", document(30), "--save-cache", cache, "--force", "--dump-kept", cache},
                       kInvalidArgument, {"the same file"});
  expect_refused(run_winnow({"compress", "-m", tiny_model(), "-t", "1", "-f", document(20), "-o",
                             "/dev/full"}),
                 kIo, {"/dev/full", "No space left"});
  EXPECT_EQ(read_text_file(cache), bytes);
  tiny_json({"--cache", cache, "-p", "Why?", "-n", "2", "--save-cache", cache, "--force"});
  EXPECT_NE(read_text_file(cache), bytes);
}

TEST(Compress, RefusesWhatItCannotDo) {
  const auto refused = [](const Args& args, const std::vector<std::string>& parts) {
    expect_refused(run_winnow(joined({"compress", "-m", tiny_model(), "-t", "1"}, args)),
                   kInvalidArgument, parts);
  };
  const std::string path = cache_path();
  refused({"-f", document(20)}, {"--output"});
  refused({"-o", path}, {"no document", "-f"});
  refused({"-o", path, "-f", document(20), "-p", "Why?"}, {"-p"});
  refused({"-o", path, "-f", document(20), "--evict", "after-prompt"},
          {"before-question, per-chunk"});
  refused({"-o", path, "-f", document(20), "--budget", "8", "--evict", "legacy-order"},
          {"legacy order", "before-question, per-chunk"});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(CacheFile, OfARealModelAnswersAsWithoutIt) {
  WINNOW_FIND_MODEL(path, kSmolLm2);
  const std::string text = write_text("password.txt",
                                      "The library opens at nine. The password of "
                                      "the archive is 4711. The garden is old.");
  const std::string cache = cache_path();
  EXPECT_EQ(run_winnow({"compress", "-m", path, "-t", "1", "-f", text, "--budget", "24", "-o",
                        cache, "--weights", "file"})
                .status,
            0);
  const auto logits_of = [&](const Args& args) {
    const std::string logits = temporary_path("logits.npy");
    json_of(joined({"run", "-m", path, "-t", "1", "--weights", "file", "-p",
                    "What is the password of the archive?", "-n", "4", "--temp", "0", "--json",
                    "--dump-logits", logits},
                   args));
    return read_text_file(logits);
  };
  EXPECT_EQ(logits_of({"--cache", cache}),
            logits_of({"-f", text, "--budget", "24", "--evict", "before-question"}));
}

TEST(CacheFile, RolesAreOfItsDocument) {
  const std::string text = write_text("cached.json", R"({"alpha": "x7ab", "beta": ["kk", 1, 2]})");
  const Args roles{"--policy", "knorm+roles:budget=30,protect=none"};
  const std::string cache = compressed(joined({"-f", text, "--roles", "json"}, roles));
  expect_cache_refused({"--cache", cache, "-p", "Why?", "--roles", "json"}, kInvalidArgument,
                       {"--roles", "goes on without one"});
  expect_cache_refused({"--cache", cache, "--roles", "json"}, kInvalidArgument, {"--roles"});
  // The whole prompt again: as then, or not at all.
  const Args again{"--cache", cache, "-f", text, "-p", "Why?"};
  const Answer same = ask(joined(again, {"--roles", "json"}));
  EXPECT_EQ(same.logits, ask(again).logits) << "it is JSON for auto, too";
  expect_cache_refused(joined(again, {"--roles", "none"}), kInvalidArgument,
                       {"--roles none", "PROSE", "cache was made"});
  // A text that goes on after an answer is labelled anew, and as it is asked for.
  const std::string answered = cache_path();
  run_winnow(tiny_run({"--cache", cache, "-p", "Why?", "-n", "2", "--save-cache", answered}));
  const std::string more = R"({"gamma": "lm", "delta": ["oo", 3, 4], "eta": "a b c d e"})";
  EXPECT_NE(ask({"--cache", answered, "-p", more, "--roles", "json"}).kept,
            ask({"--cache", answered, "-p", more, "--roles", "none"}).kept);
  expect_refused(run_winnow(tiny_run({"--ids", "1,2,3", "--roles", "json"})), kInvalidArgument,
                 {"--ids", "--roles"});
}

}  // namespace
}  // namespace winnow::test
