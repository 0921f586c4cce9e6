#include "cache/rows.h"

#include <numeric>

#include "base/error.h"
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

std::span<const int> visible_slots(const HeadRows& rows, std::span<int> slots) {
  WINNOW_CHECK(std::ssize(slots) == rows.n);
  if (rows.hidden == nullptr) {
    std::iota(slots.begin(), slots.end(), 0);
    return slots;
  }
  size_t n_visible = 0;
  for (int slot = 0; slot < rows.n; ++slot) {  // without branches: hidden rows lie anywhere
    slots[n_visible] = slot;
    n_visible += rows.hidden[slot] == kVisible ? 1 : 0;
  }
  return slots.first(n_visible);
}

}  // namespace winnow::cache
