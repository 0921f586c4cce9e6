// What a piece of a structured text is there for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/name_table.h"

namespace winnow::roles {

// In ascending order of precedence. Of a token that stands for bytes of KEY, HEADER and VALUE the first counts
// (engine/token_roles.h).
enum class Role : uint8_t {
  kSpace,   // white space between what means something
  kProse,   // running text, comments, and what no format explains
  kDelim,   // punctuation of the format
  kValue,   // what is looked up
  kHeader,  // names of columns, sections and speakers, time stamps
  kKey,     // names that values are looked up by
};

inline constexpr int kRoles = 6;

// Something of each role, at its index.
template <typename T>
using PerRole = std::array<T, kRoles>;

constexpr size_t index(Role role) {
  return static_cast<size_t>(role);
}

inline constexpr NameTable<Role, kRoles> kRoleNames{"role",
                                                    {{Role::kKey, "KEY"},
                                                     {Role::kValue, "VALUE"},
                                                     {Role::kDelim, "DELIM"},
                                                     {Role::kHeader, "HEADER"},
                                                     {Role::kProse, "PROSE"},
                                                     {Role::kSpace, "WS"}}};

}  // namespace winnow::roles
