// The names of a type's values in one table, which both reads and spells them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/nearest_name.h"

namespace winnow {

template <typename Value, size_t N>
struct NameTable {
  struct Entry {
    Value value;
    const char* name;
  };
  const char* kind;  // what messages call a value: "cache type"
  Entry entries[N];

  // `value` is in the table.
  const char* name(Value value) const {
    const Entry* const entry = std::ranges::find(entries, value, &Entry::value);
    WINNOW_CHECK(entry != std::ranges::end(entries));
    return entry->name;
  }

  std::optional<Value> find(std::string_view name) const {
    const Entry* const entry = std::ranges::find(
        entries, name, [](const Entry& each) { return std::string_view(each.name); });
    return entry == std::ranges::end(entries) ? std::nullopt : std::optional<Value>(entry->value);
  }

  // Throws invalid_argument with the nearest name and the list.
  Value parse(std::string_view name) const {
    if (const std::optional<Value> value = find(name)) {
      return *value;
    }
    std::array<std::string_view, N> names;
    std::ranges::transform(entries, names.begin(), &Entry::name);
    throw Error(ErrorCode::kInvalidArgument, unknown_name(kind, name, names));
  }
};

}  // namespace winnow
