#include "model/libllama.h"

#include <mutex>
#include <string_view>

#include "base/error.h"
#include "ggml-cpu.h"
#include "llama.h"

namespace winnow::model {
namespace {

constexpr size_t kMaxErrorLength = 300;

thread_local std::string first_error;

// The library's function names mean nothing to a user: "gguf_init_from_reader: bad magic" -> "bad magic".
std::string_view without_function_name(std::string_view line) {
  const size_t colon = line.find(": ");
  const bool is_name = colon != std::string_view::npos &&
                       line.substr(0, colon).find_first_of(" '\"") == std::string_view::npos;
  return is_name ? line.substr(colon + 2) : line;
}

std::string printable(std::string_view line) {
  std::string text(line.substr(0, kMaxErrorLength));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  for (char& c : text) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (is_control || static_cast<unsigned char>(c) >= 0x80) {
      c = '?';
    }
  }
  return text;
}

void keep_line(ggml_log_level level, const char* text, void* /*user_data*/) {
  if (level == GGML_LOG_LEVEL_ERROR && first_error.empty()) {
    first_error = printable(without_function_name(text));
  }
}

}  // namespace

void start_libllama() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(keep_line, nullptr);  // ggml's log too
    llama_backend_init();
    ggml_cpu_init();
  });
}

std::string libllama_error() {
  return first_error;
}

void clear_libllama_error() {
  first_error.clear();
}

void check_libllama_memory(const std::string& action) {
  if (first_error.find("bad_alloc") != std::string::npos) {
    throw Error(ErrorCode::kResourceExhausted, "no memory to " + action);
  }
}

}  // namespace winnow::model
