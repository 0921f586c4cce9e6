// Files of sections: what is written is read, and nothing else is.

#include "base/section_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "support/error_of.h"
#include "support/sealed.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using test::error_of;

constexpr SectionFormat kFormat{
    .magic = {'t', 'e', 's', 't', 'f', 'i', 'l', 'e'}, .version = 3, .name = "test file"};

class SectionFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SectionWriter file;
    file.begin("numbers");
    file.put(int32_t{-5});
    file.put(2.5);
    file.put_flag(true);
    file.put_text("word");
    file.begin("rows");
    file.put_array(std::span<const int32_t>(kFirst));
    file.refer(std::as_bytes(std::span(kRest)));
    file.put(uint8_t{7});
    file.begin("empty");
    file.write(path_, kFormat);
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string bytes() const { return read_text_file(path_); }
  std::string refusal(ErrorCode code) const {
    return error_of(code, [&] { const SectionFile file(path_, kFormat); });
  }

  const std::vector<int32_t> kFirst{1, 2};
  const std::vector<int32_t> kRest{3, 4, 5};
  const std::string path_ = test::temporary_path("sections");
};

TEST_F(SectionFileTest, WhatIsWrittenIsRead) {
  SectionFile file(path_, kFormat);
  EXPECT_EQ(file.n_bytes(), std::filesystem::file_size(path_));
  SectionReader numbers = file.read("numbers");
  EXPECT_EQ(numbers.get_int("number", -5, 5), -5);
  EXPECT_EQ(numbers.get<double>(), 2.5);
  EXPECT_TRUE(numbers.get_flag("flag"));
  EXPECT_EQ(numbers.get_text(), "word");
  numbers.expect_end();
  SectionReader rows = file.read("rows");
  EXPECT_EQ(rows.get_array<int32_t>(5), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(rows.n_left(), 1U);
  const std::string unread = error_of(ErrorCode::kUnsupported, [&] { file.refuse_others(); });
  EXPECT_NE(unread.find("'empty'"), std::string::npos) << unread;
  file.read("empty").expect_end();
  file.refuse_others();
  EXPECT_FALSE(file.has("other"));
  error_of(ErrorCode::kBadData, [&] { file.read("other"); });
}

TEST_F(SectionFileTest, ASectionIsNotReadBeyondItsEnd) {
  SectionFile file(path_, kFormat);
  SectionReader rows = file.read("rows");
  const std::string more = error_of(ErrorCode::kBadData, [&] { rows.expect_end(); });
  EXPECT_NE(more.find("section 'rows': 21 bytes more"), std::string::npos) << more;
  error_of(ErrorCode::kBadData, [&] { rows.get_array<int32_t>(6); });
  error_of(ErrorCode::kBadData, [&] { rows.get_array<int64_t>(SIZE_MAX / 4); });
  error_of(ErrorCode::kBadData, [&] { rows.take(22); });
  error_of(ErrorCode::kBadData, [&] { rows.get_int("number", 2, 9); });
  error_of(ErrorCode::kBadData, [&] { rows.get_flag("flag"); });  // 2
  rows.take(1);
  rows.take(1);
  error_of(ErrorCode::kBadData, [&] { rows.get_text(); });  // 3 << 16 bytes
}

TEST_F(SectionFileTest, EveryFlippedBitIsRefused) {
  const std::string sound = bytes();
  for (size_t i = 0; i < sound.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = sound;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      write(flipped);
      EXPECT_NE(refusal(ErrorCode::kBadData).find(path_), std::string::npos);
    }
  }
}

TEST_F(SectionFileTest, EveryOtherLengthIsRefused) {
  const std::string sound = bytes();
  for (size_t n = 0; n < sound.size(); ++n) {
    write(sound.substr(0, n));
    EXPECT_NE(refusal(ErrorCode::kBadData).find(n == 0 ? "empty" : "cut off"), std::string::npos);
  }
  for (const std::string& more : {std::string(1, '\0'), sound}) {
    write(sound + more);
    EXPECT_NE(refusal(ErrorCode::kBadData).find("appended"), std::string::npos);
  }
}

TEST_F(SectionFileTest, SaysWhatAFileIsInstead) {
  const std::string sound = bytes();
  std::string newer = sound;
  newer[8] = 4;
  write(test::sealed(newer));
  const std::string message = refusal(ErrorCode::kUnsupported);
  EXPECT_NE(message.find("test file of version 4; this winnow reads version 3"), std::string::npos)
      << message;
  write("GGUF" + sound.substr(4));
  EXPECT_NE(refusal(ErrorCode::kBadData).find("is not a test file"), std::string::npos);
  std::string more_sections = sound;
  more_sections[12] = 9;
  write(test::sealed(more_sections));
  EXPECT_NE(refusal(ErrorCode::kBadData).find("too early"), std::string::npos);
  std::string fewer_sections = sound;
  fewer_sections[12] = 1;
  write(test::sealed(fewer_sections));
  refusal(ErrorCode::kBadData);
  SectionWriter twice;
  twice.begin("rows");
  twice.begin("rows");
  twice.write(path_, kFormat);
  EXPECT_NE(refusal(ErrorCode::kBadData).find("'rows' is there twice"), std::string::npos);
}

TEST_F(SectionFileTest, WhatCannotBeWrittenLeavesWhatWasThere) {
  SectionWriter file;
  file.begin("large");
  const std::vector<int32_t> values(100);
  file.put_array(std::span<const int32_t>(values));
  error_of(ErrorCode::kIo, [&] { file.write(path_ + "/beneath", kFormat); });
  const std::string full =
      error_of(ErrorCode::kIo, [&] { file.write("/dev/full", kFormat); });  // every write fails
  EXPECT_NE(full.find("No space left"), std::string::npos) << full;
  SectionFile(path_, kFormat).read("rows");
}

}  // namespace
}  // namespace winnow
