// Whether this is a build with a sanitizer that has memory of its own, which some tests would measure.
#pragma once

namespace winnow::test {

inline bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace winnow::test
