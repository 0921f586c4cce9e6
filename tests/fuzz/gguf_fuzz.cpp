// A model's file of any content: loading it ends in an Error or in a model whose vocabulary works.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "gguf.h"
#include "model/model.h"
#include "support/gguf_damage.h"

namespace winnow {
namespace {

// A file in memory; what is mapped is a file, so bytes have to become one.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, data, size) != static_cast<ssize_t>(size)) {
      std::abort();
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void use(const model::Model& model) {
  const model::Vocabulary& vocabulary = model.vocabulary();
  vocabulary.tokenize("The word is <|im_end|> naïve 中 \n\n 12", model::SpecialText::kParse);
  vocabulary.tokenize(" and on", model::SpecialText::kPlain, model::TextStart::kContinues);
  for (model::Token token = 0; token < vocabulary.n_tokens(); ++token) {
    vocabulary.piece(token, /*render_special=*/true);
    vocabulary.ends_generation(token);
  }
  vocabulary.bos();
  vocabulary.chat_template();
}

// Whether gguf_damage can take it apart: a sound container with at least one key.
bool can_be_dissected(const uint8_t* data, size_t size) {
  try {
    const MemoryFile file(data, size);
    return gguf_get_n_kv(model::GgufFile(file.path()).raw()) > 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace
}  // namespace winnow

extern "C" {

int LLVMFuzzerInitialize(int* argc, char*** argv);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);

int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  winnow::set_log_level(winnow::LogLevel::kQuiet);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const winnow::MemoryFile file(data, size);
  try {
    const winnow::model::Model model(file.path(), {});
    winnow::use(model);
  } catch (const winnow::Error&) {
  }
  return 0;
}

// Bytes changed blindly rarely get past the container; what still is one is mostly damaged where it hurts.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 8 != 0 && winnow::can_be_dissected(data, size)) {
    const std::string sound(reinterpret_cast<const char*>(data), size);
    const std::string bytes = winnow::test::damaged(winnow::test::dissect(sound), seed);
    if (bytes.size() <= max_size) {
      std::memcpy(data, bytes.data(), bytes.size());
      return bytes.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
}
