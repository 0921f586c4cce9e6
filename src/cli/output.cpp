#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "base/error.h"

namespace winnow::cli {

void write_output(std::string_view text) {
  std::cout.flush();
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    throw Error(ErrorCode::kIo,
                std::string("cannot write to standard output: ") + std::strerror(errno));
  }
}

}  // namespace winnow::cli
