// Expects that loading a file fails with a code and a message.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "gguf.h"
#include "model/model.h"
#include "support/tiny_model.h"

namespace winnow::test {

inline void expect_load_error(const std::string& path, ErrorCode code, const std::string& text) {
  try {
    const model::Model loaded(path, {});
    ADD_FAILURE() << "loaded; expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
        << "message: " << error.what() << "\nexpected: " << text;
  }
}

// A tiny model whose keys and tensors `edit` changes before it is written.
inline void expect_edit_error(const std::function<void(gguf_context*)>& edit, ErrorCode code,
                              const std::string& text, TinyModelOptions options = {}) {
  options.edit = edit;
  expect_load_error(write_tiny_model(options), code, text);
}

}  // namespace winnow::test
