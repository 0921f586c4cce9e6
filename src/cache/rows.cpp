#include "cache/rows.h"

#include <array>
#include <string>

#include "base/error.h"

namespace winnow::cache {
namespace {

struct TypeRow {
  const char* name;
  size_t element_bytes;
};

// In the order of RowType.
constexpr std::array<TypeRow, 3> kTypes{{{"f32", 4}, {"f16", 2}, {"bf16", 2}}};

}  // namespace

RowType parse_row_type(std::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (name == kTypes.at(i).name) {
      return static_cast<RowType>(i);
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              "cache type '" + std::string(name) + "' is not known (f32, f16, bf16)");
}

const char* row_type_name(RowType type) {
  return kTypes.at(static_cast<size_t>(type)).name;
}

size_t element_bytes(RowType type) {
  return kTypes.at(static_cast<size_t>(type)).element_bytes;
}

}  // namespace winnow::cache
