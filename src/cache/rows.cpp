#include "cache/rows.h"

#include "base/name_table.h"

namespace winnow::cache {
namespace {

constexpr NameTable<RowType, 3> kRowTypes{
    "cache type", {{RowType::kF32, "f32"}, {RowType::kF16, "f16"}, {RowType::kBf16, "bf16"}}};

}  // namespace

RowType parse_row_type(std::string_view name) {
  return kRowTypes.parse(name);
}

const char* row_type_name(RowType type) {
  return kRowTypes.name(type);
}

size_t element_bytes(RowType type) {
  return type == RowType::kF32 ? 4 : 2;
}

}  // namespace winnow::cache
