#include "base/npz.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/error_of.h"

namespace winnow {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

const std::vector<float> kNumbers{1.5F, -2.0F, 0.0F, 3.25F, 1e30F, -0.0F};

std::string archive() {
  static const std::vector<int32_t> positions{3, 7};
  const std::vector<std::pair<std::string, NpyArray>> arrays{
      {"K", {.type = "<f4", .shape = {2, 3}, .bytes = std::as_bytes(std::span(kNumbers))}},
      {"positions", {.type = "<i4", .shape = {2}, .bytes = std::as_bytes(std::span(positions))}}};
  return format_npz(arrays);
}

// An array with a header of its own.
std::string npy(const std::string& header, size_t n_bytes) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\x00';
  return file + header + std::string(n_bytes, '\0');
}

TEST(Npz, ReadsWhatItWrites) {
  const std::string file = archive();
  EXPECT_EQ(file, archive());
  const NpzFile npz(bytes_of(file), "case.npz");
  EXPECT_EQ(npz.names(), (std::vector<std::string>{"K", "positions"}));
  const NpyArray* const keys = npz.find("K");
  ASSERT_NE(keys, nullptr);
  EXPECT_EQ(keys->shape_text(), "[2, 3]");
  EXPECT_EQ(npy_floats(*keys, "K"), kNumbers);
  EXPECT_EQ(npy_integers(*npz.find("positions"), "positions"), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(npz.find("V"), nullptr);
}

// Of every type that NumPy has.
TEST(Npz, IntegersAreReadWhateverTheirSize) {
  const std::vector<std::byte> bytes(8, std::byte{0xff});
  for (const std::string type : {"|i1", "<i2", "<i4", "<i8"}) {
    const size_t n_bytes = static_cast<size_t>(type[2] - '0');
    const NpyArray array{.type = type, .shape = {1}, .bytes = std::span(bytes).first(n_bytes)};
    EXPECT_EQ(npy_integers(array, "a"), std::vector<int64_t>{-1}) << type;
    EXPECT_EQ(npy_floats(array, "a"), std::vector<float>{-1}) << type;
  }
  for (const std::string type : {"|u1", "<u2", "<u4"}) {
    const size_t n_bytes = static_cast<size_t>(type[2] - '0');
    const NpyArray array{.type = type, .shape = {1}, .bytes = std::span(bytes).first(n_bytes)};
    EXPECT_EQ(npy_integers(array, "a"), (std::vector<int64_t>{(int64_t{1} << (8 * n_bytes)) - 1}))
        << type;
  }
  const NpyArray widest{.type = "<u8", .shape = {1}, .bytes = bytes};
  EXPECT_THROW(npy_integers(widest, "a"), Error);
  const NpyArray flags{.type = "|b1", .shape = {8}, .bytes = bytes};
  EXPECT_THROW(npy_integers(flags, "a"), Error);
}

TEST(Npz, EveryTruncationIsRefused) {
  const std::string file = archive();
  for (size_t n = 0; n < file.size(); ++n) {
    const std::string cut = file.substr(0, n);
    SCOPED_TRACE(n);
    test::error_of(ErrorCode::kBadData, [&] { NpzFile(bytes_of(cut), "case.npz"); });
  }
}

// What does not matter, such as a date, may change; what is read is either as it was or refused.
TEST(Npz, NoFlippedByteChangesWhatIsRead) {
  const std::string file = archive();
  int n_refused = 0;
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      try {
        const NpzFile npz(bytes_of(changed), "case.npz");
        const NpyArray* const keys = npz.find("K");
        if (keys != nullptr) {
          ASSERT_EQ(keys->shape_text(), "[2, 3]") << at;
          ASSERT_EQ(npy_floats(*keys, "K"), kNumbers) << at;
        }
      } catch (const Error&) {
        ++n_refused;
      }
    }
  }
  EXPECT_GT(n_refused, static_cast<int>(2 * file.size()));
}

TEST(Npy, ReadsHeadersAsNumpyMayWriteThem) {
  const std::string one_number = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 8);
  EXPECT_EQ(parse_npy(bytes_of(one_number), "x").n_elements(), 1U);
  const std::string other_order =
      npy("{\"shape\":(2,),\"fortran_order\":True,\"descr\":\"<i8\"}\n", 16);
  EXPECT_EQ(parse_npy(bytes_of(other_order), "x").shape, std::vector<size_t>{2});
  const std::string empty = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5)}", 0);
  EXPECT_EQ(parse_npy(bytes_of(empty), "x").n_elements(), 0U);
}

TEST(Npy, RefusesWhatItCannotRead) {
  const auto expect_refused = [](ErrorCode code, const std::string& file) {
    SCOPED_TRACE(file);
    test::error_of(code, [&] { parse_npy(bytes_of(file), "x"); });
  };
  const std::string rest = "', 'fortran_order': False, 'shape': (2, 2), }";
  expect_refused(ErrorCode::kUnsupported, npy("{'descr': '>f4" + rest, 16));
  expect_refused(ErrorCode::kUnsupported, npy("{'descr': '|O" + rest, 16));
  expect_refused(ErrorCode::kUnsupported,
                 npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 16));
  expect_refused(ErrorCode::kBadData, npy("{'descr': '<f4" + rest, 15));
  expect_refused(ErrorCode::kBadData, npy("{'descr': '<f4', 'fortran_order': False}", 16));
  expect_refused(ErrorCode::kBadData,
                 npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 16));
  expect_refused(ErrorCode::kBadData, npy("{'descr': '<f4', 'fortran_order': False, "
                                          "'shape': (4294967296, 4294967296, 4294967296)}",
                                          0));
  expect_refused(ErrorCode::kBadData, "\x93NUMPY");
}

TEST(Npy, HalvesAndDoublesBecomeFloats) {
  const std::vector<uint16_t> halves{0x3c00, 0xc000, 0x0001, 0x83ff,
                                     0x7bff, 0x7c00, 0x8000, 0x7e00};
  const std::vector<float> floats =
      npy_floats({.type = "<f2", .shape = {8}, .bytes = std::as_bytes(std::span(halves))}, "x");
  const std::vector<float> expected{
      1, -2, 0x1p-24F, -0x3ffp-24F, 65504, std::numeric_limits<float>::infinity(), -0.0F};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(floats[i], expected[i]) << i;
  }
  EXPECT_TRUE(std::signbit(floats[6]));
  EXPECT_TRUE(std::isnan(floats[7]));
  const double large = 1e300;
  test::error_of(ErrorCode::kBadData, [&] {
    npy_floats({.type = "<f8", .shape = {}, .bytes = std::as_bytes(std::span(&large, 1))}, "x");
  });
}

}  // namespace
}  // namespace winnow
