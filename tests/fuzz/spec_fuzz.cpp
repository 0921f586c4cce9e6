// A policy spec of any text: an Error, or a policy whose canonical spec is the same policy.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/policy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using winnow::policy::Policy;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string spec;
  try {
    spec = Policy::parse(text).spec();
  } catch (const winnow::Error&) {
    return 0;
  }
  Policy policy = Policy::parse(spec);  // must not throw
  if (policy.spec() != spec) {
    std::abort();
  }
  try {
    policy.resolve({.n_document = 1000, .n_extra = 20, .row_bytes = 264, .n_heads = 90});
  } catch (const winnow::Error&) {
    return 0;
  }
  if (policy.budget_rows() < 1 || policy.n_recent() < 0) {
    std::abort();
  }
  return 0;
}
