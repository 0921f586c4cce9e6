#include "cache/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/memory.h"

namespace winnow::cache {

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_up_to_page(size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

Storage::Storage(size_t bytes) : size_(round_up_to_page(bytes)) {
  // NORESERVE: ranges are sized for the longest a head may grow, and most of that is never touched.
  void* const mapping = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted,
                "cannot reserve " + format_bytes(size_) +
                    " of address space for the cache: " + std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(mapping);
  // A huge page would make 2 MiB resident for the first row of every range.
  ::madvise(data_, size_, MADV_NOHUGEPAGE);
}

Storage::~Storage() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

Storage::Storage(Storage&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void Storage::give_back(size_t begin, size_t end) {
  if (begin < end) {
    ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
  }
}

}  // namespace winnow::cache
