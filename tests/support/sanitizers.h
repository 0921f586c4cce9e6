// Whether this is a build with the address sanitizer, whose own memory some tests would measure.
#pragma once

namespace winnow::test {

inline bool is_sanitized() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return false;
#endif
}

}  // namespace winnow::test
