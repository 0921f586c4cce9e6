// Catches what a call throws, for tests of error messages.
#pragma once

#include <string>

#include "base/error.h"

namespace winnow::policy {

// The message of the invalid_argument that `call` throws; otherwise a text that no test expects.
template <typename Call>
std::string thrown_message(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kInvalidArgument ? error.what() : "(another error code)";
  }
  return "(nothing thrown)";
}

}  // namespace winnow::policy
