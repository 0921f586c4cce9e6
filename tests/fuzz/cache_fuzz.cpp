// A cache file of any content: loading it ends in an Error, or in a session that can read on and be saved.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "engine/session_file.h"
#include "support/sealed.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

constexpr size_t kSmallestFile = 32;

// The one that write_seeds writes caches of.
const model::Model& model() {
  static const model::Model small(
      test::write_tiny_model(test::smallest_model("llama", GGML_TYPE_Q4_0)), {});
  return small;
}

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

void go_on(const std::string& path) {
  engine::Session session(model(), engine::load_session(path, model()),
                          {.order = {}, .engine = {.n_threads = 1, .n_batch = 16}});
  const engine::PromptTokens next{.question = {1, 2}};
  session.reserve(session.plan(next, 3).max_rows);
  session.save("/dev/null");
  session.read(next, {});
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
    winnow::go_on(file.path());
  } catch (const winnow::Error&) {
  }
  return 0;
}

// Bytes changed blindly never get past the checksum; most get one that fits.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const size_t mutated = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 != 0 && mutated >= winnow::kSmallestFile) {
    const std::string bytes = winnow::test::sealed({reinterpret_cast<const char*>(data), mutated});
    std::memcpy(data, bytes.data(), bytes.size());
  }
  return mutated;
}
}
