// What the operating system says of the processor.
#pragma once

#include <cstddef>
#include <string>

namespace winnow {

struct Processor {
  std::string name;        // "unknown" where the system does not say
  int n_logical = 1;       // processors that programs see
  size_t cache_bytes = 0;  // of the last level of cache; 32 MiB where the system does not say
};
Processor processor();

}  // namespace winnow
