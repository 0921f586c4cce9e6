// Expects that loading a file fails with a code and a message.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "gguf.h"
#include "model/model.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::test {

inline void expect_load_error(const std::string& path, ErrorCode code, const std::string& text) {
  SCOPED_TRACE("expected: " + text);
  const std::string message = error_of(code, [&] { const model::Model loaded(path, {}); });
  EXPECT_NE(message.find(text), std::string::npos) << "message: " << message;
}

// A tiny model whose keys and tensors `edit` changes before it is written.
inline void expect_edit_error(const std::function<void(gguf_context*)>& edit, ErrorCode code,
                              const std::string& text, TinyModelOptions options = {}) {
  options.edit = edit;
  expect_load_error(write_tiny_model(options), code, text);
}

}  // namespace winnow::test
