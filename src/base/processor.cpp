#include "base/processor.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/text.h"

namespace winnow {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    const size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return std::string(trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return "unknown";
}

// What programs on the first processor share: sysconf() may tell the whole machine's, of which a part is lent.
size_t last_cache_bytes() {
  for (int index = 4; index >= 1; --index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    size_t kibibytes = 0;
    char unit = '\0';
    if (file >> kibibytes >> unit && unit == 'K' && kibibytes > 0) {
      return kibibytes << 10;
    }
  }
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long n_bytes = ::sysconf(level);
    if (n_bytes > 0) {
      return static_cast<size_t>(n_bytes);
    }
  }
  return size_t{32} << 20;
}

}  // namespace

Processor processor() {
  return {.name = processor_name(),
          .n_logical = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
          .cache_bytes = last_cache_bytes()};
}

}  // namespace winnow
