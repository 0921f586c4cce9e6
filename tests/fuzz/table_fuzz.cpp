// A table of layers or heads of any text: an Error, or numbers that are all allowed.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "policy/head_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  winnow::policy::HeadTable table;
  try {
    table = winnow::policy::parse_head_table({reinterpret_cast<const char*>(data), size});
  } catch (const winnow::Error&) {
    return 0;
  }
  double sum = 0;
  for (const auto& layer : table.layers) {
    if (layer.size() != table.layers.front().size()) {
      std::abort();
    }
    for (const double number : layer) {
      if (!(number >= 0)) {
        std::abort();
      }
      sum += number;
    }
  }
  if (!(sum > 0)) {
    std::abort();
  }
  return 0;
}
