#include "base/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace winnow {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// The value of "Key:   123 kB" in a file of /proc, in bytes.
size_t proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(key + ":", 0) == 0) {
      return std::stoull(line.substr(key.size() + 1)) * 1024;
    }
  }
  return 0;
}

std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  if (file >> value) {
    return value;
  }
  return std::nullopt;  // no such file, or "max"
}

// What the cgroup at `directory` leaves, given the names of its two files.
size_t cgroup_room(const std::string& directory, const char* limit_name, const char* usage_name) {
  const std::optional<size_t> limit = number_in(directory + "/" + limit_name);
  const std::optional<size_t> usage = number_in(directory + "/" + usage_name);
  if (!limit || !usage) {
    return kNoLimit;
  }
  return *limit > *usage ? *limit - *usage : 0;
}

// The tightest limit on the way from the process's own cgroup up to the root.
size_t cgroup_room() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  size_t room = kNoLimit;
  while (std::getline(file, line)) {
    const size_t path_start = line.find(':', line.find(':') + 1);
    if (path_start == std::string::npos) {
      continue;
    }
    const bool is_v2 = line.rfind("0::", 0) == 0;
    if (!is_v2 && line.find("memory") == std::string::npos) {
      continue;
    }
    const std::string root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(path_start + 1);
    while (true) {
      room = std::min(
          room, is_v2 ? cgroup_room(root + path, "memory.max", "memory.current")
                      : cgroup_room(root + path, "memory.limit_in_bytes", "memory.usage_in_bytes"));
      const size_t slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) {
        break;
      }
      path.resize(slash);
    }
  }
  return room;
}

}  // namespace

ProcessMemory process_memory() {
  const char* const status = "/proc/self/status";
  return {.rss_anon_bytes = proc_value(status, "RssAnon"),
          .rss_peak_bytes = proc_value(status, "VmHWM"),
          .virtual_bytes = proc_value(status, "VmSize")};
}

MemoryLimit available_memory() {
  MemoryLimit limit{.bytes = proc_value("/proc/meminfo", "MemAvailable"), .source = "free memory"};
  if (limit.bytes == 0) {
    limit.bytes = kNoLimit;  // no /proc: nothing is known
  }
  if (const size_t room = cgroup_room(); room < limit.bytes) {
    limit = {.bytes = room, .source = "the cgroup's memory limit"};
  }
  return limit;
}

MemoryLimit available_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {.bytes = kNoLimit, .source = "no limit"};
  }
  const size_t used = process_memory().virtual_bytes;
  return {.bytes = limit.rlim_cur > used ? limit.rlim_cur - used : 0,
          .source = "the address space limit (ulimit -v)"};
}

std::string format_bytes(size_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace winnow
