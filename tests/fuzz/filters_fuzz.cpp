// A file of filters of any content: reading it ends in an Error, or in filters that say what they state.

#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "policy/filters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace winnow;
  try {
    const policy::Filters filters =
        policy::parse_filters(std::as_bytes(std::span(data, size)), "filters.npz");
    const policy::FilterShape& shape = filters.shape;
    if (filters.direction(shape.n_layers - 1, shape.n_kv_heads - 1).size() !=
        static_cast<size_t>(shape.head_dim)) {
      std::abort();
    }
    const std::string again = policy::format_filters(filters, {});
    if (policy::parse_filters(std::as_bytes(std::span(again)), "again").directions !=
        filters.directions) {
      std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
