// Memory that a computation uses and leaves behind, kept from call to call, so that what runs for every token allocates
// nothing once its buffers have grown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace winnow {

inline constexpr size_t kLineBytes = 64;  // of a cache line, and of the longest vector

// The first address from `pointer` on that is a multiple of kLineBytes.
template <class T>
T* align_to_line(T* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return pointer + (kLineBytes - address % kLineBytes) % kLineBytes / sizeof(T);
}

// One thread's. Whoever takes memory opens a Frame first; its end makes all that was taken since free for the next.
class Scratch {
 public:
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(scratch), n_taken_(scratch.n_taken_) {}
    ~Frame() { scratch_.n_taken_ = n_taken_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    size_t n_taken_;
  };

  // [n] elements of any content, aligned to kLineBytes, valid until the frame ends, whatever else is taken meanwhile.
  template <class T>
  std::span<T> take(size_t n) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(std::max_align_t));
    if (n_taken_ == buffers_.size()) {
      buffers_.emplace_back();
    }
    std::vector<std::byte>& buffer = buffers_[n_taken_++];
    const size_t n_bytes = n * sizeof(T) + kLineBytes;
    if (buffer.size() < n_bytes) {
      buffer = std::vector<std::byte>(std::max(n_bytes, 2 * buffer.size()));
    }
    return {reinterpret_cast<T*>(align_to_line(buffer.data())), n};
  }

  template <class T>
  std::span<T> take_filled(size_t n, T value) {
    const std::span<T> taken = take<T>(n);
    std::fill(taken.begin(), taken.end(), value);
    return taken;
  }

 private:
  std::vector<std::vector<std::byte>> buffers_;
  size_t n_taken_ = 0;
};

}  // namespace winnow
