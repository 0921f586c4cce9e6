// Reading and writing whole files, and what is said when that fails.

#include "base/files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/mapped_file.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using test::error_of;

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
  error_of(ErrorCode::kNotFound, [] { read_text_file("/no/such/file"); });
  error_of(ErrorCode::kIo, [] { read_text_file("/"); });
  error_of(ErrorCode::kIo, [] { read_text_file("/proc/self/mem"); });  // opens, but fails
}

TEST(Files, SayWhyTheyCannotBeMapped) {
  const std::string empty = test::temporary_path("empty");
  write_file_atomically(empty, "");
  error_of(ErrorCode::kNotFound, [] { MappedFile("/no/such/file"); });
  error_of(ErrorCode::kIo, [] { MappedFile("/"); });
  error_of(ErrorCode::kIo, [] { MappedFile("/dev/null"); });
  error_of(ErrorCode::kBadData, [&] { MappedFile{empty}; });
}

TEST(Files, AskingWhetherOneCanBeWrittenLeavesNothing) {
  const std::filesystem::path folder = test::temporary_path("asked");
  std::filesystem::create_directory(folder);
  check_writable(folder / "file");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  error_of(ErrorCode::kIo, [&] { check_writable(folder / "none" / "file"); });
  error_of(ErrorCode::kIo, [&] { check_writable(folder); });
}

}  // namespace
}  // namespace winnow
