// Whatever is wrong with a file, loading it ends in an Error or in a model that works; the process lives.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "model/model.h"
#include "support/ggml_attention.h"
#include "support/gguf_damage.h"
#include "support/tiny_model.h"

namespace winnow::model {
namespace {

// What a child tells its parent, in memory they share.
struct Progress {
  uint64_t seed;  // being tried
  uint64_t n_loaded;
  uint64_t n_refused;
  char message[200];  // of something thrown that is no Error
};

void use(const Model& model) {
  const std::vector<Token> tokens =
      model.vocabulary().tokenize("The word is <|im_end|> naïve 中 \n\n 12", SpecialText::kParse);
  for (Token token = 0; token < model.vocabulary().n_tokens(); ++token) {
    model.vocabulary().piece(token, true);
    model.vocabulary().ends_generation(token);
  }
  model.vocabulary().bos();
  model.vocabulary().chat_template();
  if (!tokens.empty()) {
    test::ggml_attention_logits(model, std::span(tokens).first(1), 1, 1);
  }
}

void try_file(const std::string& path, const std::string& bytes, Progress& progress) {
  write_file_atomically(path, bytes);
  try {
    const Model model(path, {});
    use(model);
    ++progress.n_loaded;
  } catch (const Error&) {
    ++progress.n_refused;
  } catch (const std::exception& error) {
    std::strncpy(progress.message, error.what(), sizeof progress.message - 1);
    ::_exit(1);
  }
}

// Tries the seeds [first, last) in children; one that dies names its seed, and the next goes on after it.
void survive_damage(const test::TinyModelOptions& options, uint64_t first, uint64_t last) {
  const test::GgufAnatomy sound = test::dissect(read_text_file(test::write_tiny_model(options)));
  const std::string path = test::temporary_path("damaged.gguf");
  void* const shared =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Progress& progress = *new (shared) Progress{};
  set_log_level(LogLevel::kQuiet);
  for (uint64_t next = first; next < last; next = progress.seed + 1) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (progress.seed = next; progress.seed < last; ++progress.seed) {
        try_file(path, test::damaged(sound, progress.seed), progress);
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "seed " << progress.seed << ": "
        << (WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : progress.message);
  }
  set_log_level(LogLevel::kWarning);
  testing::Test::RecordProperty("loaded", std::to_string(progress.n_loaded));
  testing::Test::RecordProperty("refused", std::to_string(progress.n_refused));
  // Damage that always or never shows would test little.
  EXPECT_GT(progress.n_loaded, (last - first) / 50);
  EXPECT_GT(progress.n_refused, (last - first) / 4);
  ::munmap(shared, sizeof(Progress));
}

test::TinyModelOptions smallest() {
  return test::smallest_model("llama", GGML_TYPE_Q8_0);
}

TEST(DamagedFile, OfTheLlamaFamilyIsRefusedOrWorks) {
  survive_damage(smallest(), 0, 4000);
}

TEST(DamagedFile, OfTheQwen2FamilyIsRefusedOrWorks) {
  test::TinyModelOptions options = smallest();
  options.architecture = "qwen2";
  options.pre_tokenizer = "qwen2";
  survive_damage(options, 10000, 12000);
}

TEST(DamagedFile, WithASentencePieceVocabularyIsRefusedOrWorks) {
  test::TinyModelOptions options = smallest();
  options.sentencepiece = true;
  options.rope_freqs = true;
  survive_damage(options, 20000, 22000);
}

TEST(DamagedFile, OfThePhi3FamilyIsRefusedOrWorks) {
  test::TinyModelOptions options = smallest();
  options.architecture = "phi3";
  options.rope_scaling = "longrope";
  options.rope_attn_factor = 1.2F;
  options.n_rot = 12;
  options.n_ctx_orig = 64;
  options.context_factors = true;
  survive_damage(options, 30000, 31500);
}

TEST(DamagedFile, OfTheGemma3FamilyIsRefusedOrWorks) {
  test::TinyModelOptions options = smallest();
  options.architecture = "gemma3";
  options.n_layers = 2;
  options.rope_scaling = "yarn";
  options.rope_scale = 4.0F;
  options.swa_window = 10;
  options.swa_pattern = 2;
  options.logit_softcap = 30.0F;
  survive_damage(options, 40000, 41500);
}

}  // namespace
}  // namespace winnow::model
