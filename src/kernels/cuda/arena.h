// Device memory of a cache: one reservation of address space, of which only committed granules exist, so that a budget is what the
// device holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow::kernels::cuda {

class Arena {
 public:
  // Reserves address space for so many bytes; takes no memory. Throws resource_exhausted.
  explicit Arena(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const;
  size_t granule_bytes() const { return granule_; }
  size_t committed_bytes() const { return n_committed_ * granule_; }

  // Makes the bytes [begin, end) usable: takes memory for the granules they lie on that have none. On failure throws
  // resource_exhausted and holds what it held before.
  void commit(size_t begin, size_t end);

  // Gives back the memory of granules that lie wholly in [begin, end). No work on them may be under way. They are not zero
  // when they are committed again.
  void give_back(size_t begin, size_t end);

 private:
  void release(size_t granule);

  uint64_t address_ = 0;
  size_t granule_ = 0;
  size_t n_committed_ = 0;
  std::vector<uint64_t> handles_;  // [granules], 0: not committed
};

}  // namespace winnow::kernels::cuda
