// What is wrong with a file as a container is refused with a message that says what.

#include "model/gguf_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "model/expect_error.h"
#include "support/gguf_damage.h"

namespace winnow::model {
namespace {

using test::expect_edit_error;
using test::expect_load_error;

std::string write_bytes(const std::string& bytes) {
  const std::string path = test::temporary_path("bytes.gguf");
  write_file_atomically(path, bytes);
  return path;
}

std::string sound_bytes() {
  return read_text_file(test::write_tiny_model());
}

template <typename T>
std::string with_number(std::string bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

TEST(GgufFile, NamesAMissingPath) {
  expect_load_error("/no/such/model.gguf", ErrorCode::kNotFound, "/no/such/model.gguf");
}

TEST(GgufFile, RefusesADirectory) {
  expect_load_error(std::filesystem::temp_directory_path(), ErrorCode::kIo, "directory");
}

TEST(GgufFile, RefusesAnEmptyFile) {
  expect_load_error(write_bytes(""), ErrorCode::kBadData, "empty");
}

TEST(GgufFile, RefusesOtherFormats) {
  expect_load_error(write_bytes("PK\x03\x04 and so on, long enough for a header"),
                    ErrorCode::kBadData, "not a GGUF file");
  expect_load_error(write_bytes("GG"), ErrorCode::kBadData, "not a GGUF file");
}

TEST(GgufFile, RefusesAFileThatEndsInItsHeader) {
  expect_load_error(write_bytes(sound_bytes().substr(0, 20)), ErrorCode::kBadData,
                    "ends inside its header");
  expect_load_error(write_bytes(sound_bytes().substr(0, 3000)), ErrorCode::kBadData,
                    "header cannot be read");
}

TEST(GgufFile, RefusesAFileThatEndsInItsTensors) {
  std::string bytes = sound_bytes();
  bytes.resize(bytes.size() - 1000);
  expect_load_error(write_bytes(bytes), ErrorCode::kBadData, "the file is cut off");
}

TEST(GgufFile, RefusesOtherVersionsByName) {
  expect_load_error(write_bytes(with_number<uint32_t>(sound_bytes(), 4, 1)),
                    ErrorCode::kUnsupported, "GGUF version 1 (supported: 2, 3)");
  expect_load_error(write_bytes(with_number<uint32_t>(sound_bytes(), 4, 4)),
                    ErrorCode::kUnsupported, "GGUF version 4");
  expect_load_error(write_bytes(with_number<uint32_t>(sound_bytes(), 4, 0)),
                    ErrorCode::kUnsupported, "GGUF version 0");
}

TEST(GgufFile, RefusesTheOtherByteOrder) {
  expect_load_error(write_bytes(with_number<uint32_t>(sound_bytes(), 4, 0x03000000)),
                    ErrorCode::kUnsupported, "byte order");
}

TEST(GgufFile, RefusesCountsThatTheFileCannotHold) {
  expect_load_error(write_bytes(with_number<uint64_t>(sound_bytes(), 8, 1ULL << 40)),
                    ErrorCode::kBadData, "1099511627776 tensors");
  expect_load_error(write_bytes(with_number<int64_t>(sound_bytes(), 16, -1)), ErrorCode::kBadData,
                    "more than the file can hold");
}

TEST(GgufFile, RefusesSplitFiles) {
  expect_edit_error([](gguf_context* g) { gguf_set_val_u16(g, "split.count", 3); },
                    ErrorCode::kUnsupported, "split over 3 files");
}

TEST(GgufFile, LoadsASplitOfOne) {
  test::TinyModelOptions options;
  options.edit = [](gguf_context* g) { gguf_set_val_u16(g, "split.count", 1); };
  EXPECT_NO_THROW(Model(test::write_tiny_model(options), {}));
}

TEST(GgufFile, RefusesDoubledKeysAndTensors) {
  const test::GgufAnatomy sound = test::dissect(sound_bytes());
  const auto doubled = [&](const test::GgufEntry& entry, size_t count_offset) {
    std::string bytes = sound.bytes;
    bytes.insert(entry.begin, bytes.substr(entry.begin, entry.end - entry.begin));
    ++bytes[count_offset];
    return write_bytes(bytes);
  };
  expect_load_error(doubled(sound.keys[1], 16), ErrorCode::kBadData, "duplicate key");
  expect_load_error(doubled(sound.tensors[1], 8), ErrorCode::kBadData, "duplicate tensor");
}

TEST(GgufFile, RefusesUnknownTensorTypes) {
  const test::GgufAnatomy sound = test::dissect(sound_bytes());
  const size_t type = sound.tensors[0].end - 12;
  for (const int32_t value : {4, 36, 1000, -1}) {  // two were removed, two never were
    expect_load_error(write_bytes(with_number(sound.bytes, type, value)), ErrorCode::kBadData,
                      "header cannot be read");
  }
}

TEST(GgufFile, RefusesOffsetsThatDoNotFollowEachOther) {
  const test::GgufAnatomy sound = test::dissect(sound_bytes());
  const size_t offset = sound.tensors[1].end - 8;
  expect_load_error(write_bytes(with_number<uint64_t>(sound.bytes, offset, 0)), ErrorCode::kBadData,
                    "has offset 0");
}

// The tiny model with another alignment; its tensors are multiples of 64 bytes long. ggml's writer cannot do it.
std::string write_aligned(uint32_t alignment) {
  test::TinyModelOptions options;
  options.edit = [](gguf_context* g) { gguf_set_val_u32(g, "general.alignment", 32); };
  const test::GgufAnatomy sound = test::dissect(read_text_file(test::write_tiny_model(options)));
  const std::string key = "general.alignment";
  std::string header = with_number(sound.bytes.substr(0, sound.header_end),
                                   sound.bytes.find(key) + key.size() + 4, alignment);
  const std::string data = sound.bytes.substr((header.size() + 31) / 32 * 32);
  while (alignment > 0 && alignment <= 64 && header.size() % alignment != 0) {
    header.push_back('\0');
  }
  return write_bytes(header + data);
}

TEST(GgufFile, LoadsOtherAlignments) {
  EXPECT_NO_THROW(Model(write_aligned(32), {}));
  EXPECT_NO_THROW(Model(write_aligned(64), {}));
}

TEST(GgufFile, RefusesTensorsThatAreNotAlignedInMemory) {
  expect_load_error(write_aligned(8), ErrorCode::kUnsupported, "not a multiple of 32");
}

TEST(GgufFile, RefusesAlignmentsThatAreNone) {
  for (const uint32_t alignment : {0U, 48U, 1U << 31}) {
    expect_load_error(write_aligned(alignment), ErrorCode::kBadData, "header cannot be read");
  }
  expect_load_error(write_aligned(4), ErrorCode::kBadData,
                    "general.alignment is 4 (allowed: powers of two from 8)");
}

TEST(GgufFile, ReadsAnyIntegerType) {
  test::TinyModelOptions options;
  options.edit = [](gguf_context* g) {
    gguf_set_val_u8(g, "n.u8", 200);
    gguf_set_val_i8(g, "n.i8", -5);
    gguf_set_val_u16(g, "n.u16", 60000);
    gguf_set_val_i16(g, "n.i16", -300);
    gguf_set_val_i32(g, "n.i32", -70000);
    gguf_set_val_u64(g, "n.u64", 1ULL << 40);
    gguf_set_val_i64(g, "n.i64", -(1LL << 40));
    gguf_set_val_u64(g, "n.huge", ~0ULL);
  };
  const GgufFile file(test::write_tiny_model(options));
  const auto read = [&](const char* key) { return file.integer(key, INT64_MIN, INT64_MAX); };
  EXPECT_EQ(read("n.u8"), 200);
  EXPECT_EQ(read("n.i8"), -5);
  EXPECT_EQ(read("n.u16"), 60000);
  EXPECT_EQ(read("n.i16"), -300);
  EXPECT_EQ(read("n.i32"), -70000);
  EXPECT_EQ(read("n.u64"), 1LL << 40);
  EXPECT_EQ(read("n.i64"), -(1LL << 40));
  EXPECT_THROW(read("n.huge"), Error);
}

TEST(GgufFile, ChecksTypesAndRangesOfValues) {
  test::TinyModelOptions options;
  options.edit = [](gguf_context* g) {
    gguf_set_val_str(g, "a.text", "seven");
    gguf_set_val_i32(g, "a.seven", 7);
    gguf_set_val_f64(g, "a.half", 0.5);
    gguf_set_val_f32(g, "a.nan", NAN);
    gguf_set_val_bool(g, "a.yes", true);
  };
  const GgufFile file(test::write_tiny_model(options));
  EXPECT_EQ(file.string("a.text"), "seven");
  EXPECT_EQ(file.number("a.half", 0, 1), 0.5F);
  EXPECT_EQ(file.find_bool("a.yes"), true);
  EXPECT_EQ(file.find_integer("a.none", 0, 1), std::nullopt);
  EXPECT_EQ(file.find_number("a.none", 0, 1), std::nullopt);
  EXPECT_EQ(file.find_string("a.none"), std::nullopt);
  EXPECT_EQ(file.find_bool("a.none"), std::nullopt);
  const auto message = [](const auto& read) { return test::error_of(ErrorCode::kBadData, read); };
  const std::pair<std::string, std::string> cases[] = {
      {message([&] { file.integer("a.text", 0, 9); }), "'a.text' is of type 'str', not an integer"},
      {message([&] { file.integer("a.seven", 8, 9); }), "'a.seven' is 7 (allowed: 8 to 9)"},
      {message([&] { file.integer("a.none", 0, 9); }), "'a.none' is missing"},
      {message([&] { file.number("a.seven", 0, 9); }), "not a floating-point number"},
      {message([&] { file.number("a.half", 1, 2); }), "'a.half' is 0.5"},
      {message([&] { file.number("a.nan", -1, 1); }), "'a.nan' is nan"},
      {message([&] { file.number("a.none", 0, 1); }), "'a.none' is missing"},
      {message([&] { file.string("a.seven"); }), "'a.seven' is of type 'i32', not a string"},
      {message([&] { file.string("a.none"); }), "'a.none' is missing"},
      {message([&] { file.find_bool("a.seven"); }), "not true or false"},
  };
  for (const auto& [found, expected] : cases) {
    EXPECT_NE(found.find(expected), std::string::npos) << found << "\nexpected: " << expected;
  }
}

}  // namespace
}  // namespace winnow::model
