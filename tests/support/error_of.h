// Catches what a call throws, for tests of errors.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace winnow::test {

// The message of the Error that `action` throws; a failure where it throws none, or one of another code.
template <typename Action>
std::string error_of(ErrorCode code, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace winnow::test
