// What memory this process uses and may still use, as the operating system sees it.
#pragma once

#include <cstddef>
#include <string>

namespace winnow {

struct ProcessMemory {
  size_t rss_anon_bytes = 0;  // resident and anonymous: what eviction can make smaller
  size_t rss_peak_bytes = 0;  // the most that was resident so far, of all kinds
  size_t virtual_bytes = 0;   // address space
};
ProcessMemory process_memory();  // from /proc/self/status; zeros where that does not exist

struct MemoryLimit {
  size_t bytes = 0;    // how much more this process may use
  std::string source;  // what sets it, for messages: "free memory", "the cgroup", …
};

// The smallest of free memory and the limits of the process's cgroups (v2 or v1); SIZE_MAX bytes when none is known.
MemoryLimit available_memory();

// What `ulimit -v` leaves of the address space; SIZE_MAX bytes when there is no limit.
MemoryLimit available_address_space();

// "11.8 MiB": for messages.
std::string format_bytes(size_t bytes);

}  // namespace winnow
