// Reading and writing whole files, and what is said when that fails.

#include "base/files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/mapped_file.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

// The code of the error that `action` throws.
template <typename Action>
ErrorCode code_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(Files, WhatIsWrittenIsReadAndMapped) {
  const std::string content("a\0b\n", 4);
  const std::string path = test::temporary_path("content");
  write_file_atomically(path, "longer than what follows");
  write_file_atomically(path, content);
  EXPECT_EQ(read_text_file(path), content);
  const MappedFile mapped(path);
  const auto bytes = std::as_bytes(std::span(content));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), mapped.bytes().begin(), mapped.bytes().end()));
}

TEST(Files, SayWhyTheyCannotBeRead) {
  EXPECT_EQ(code_of([] { read_text_file("/no/such/file"); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([] { read_text_file("/"); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([] { read_text_file("/proc/self/mem"); }), ErrorCode::kIo);  // opens, but fails
}

TEST(Files, SayWhyTheyCannotBeMapped) {
  const std::string empty = test::temporary_path("empty");
  write_file_atomically(empty, "");
  EXPECT_EQ(code_of([] { MappedFile("/no/such/file"); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([] { MappedFile("/"); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([] { MappedFile("/dev/null"); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { MappedFile{empty}; }), ErrorCode::kBadData);
}

TEST(Files, AskingWhetherOneCanBeWrittenLeavesNothing) {
  const std::filesystem::path folder = test::temporary_path("asked");
  std::filesystem::create_directory(folder);
  check_writable(folder / "file");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(code_of([&] { check_writable(folder / "none" / "file"); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { check_writable(folder); }), ErrorCode::kIo);
}

}  // namespace
}  // namespace winnow
