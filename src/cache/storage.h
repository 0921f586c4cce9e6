// The memory of a cache: one private reservation, of which only touched pages exist.
#pragma once

#include <cstddef>

namespace winnow::cache {

size_t page_bytes();
size_t round_up_to_page(size_t bytes);

class Storage {
 public:
  // Reserves address space; no memory is used until it is touched. Throws resource_exhausted.
  explicit Storage(size_t bytes);
  ~Storage();
  Storage(Storage&& other) noexcept;
  Storage& operator=(Storage&&) = delete;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }

  // Returns the pages of [begin, end) to the system; both are page-aligned offsets. They read as zeros afterwards.
  void give_back(size_t begin, size_t end);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace winnow::cache
