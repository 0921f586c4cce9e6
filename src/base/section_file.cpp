#include "base/section_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace winnow {
namespace {

constexpr size_t kHeaderBytes = 24;
constexpr size_t kChecksumBytes = sizeof(uint64_t);

template <FileNumber T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <FileNumber T>
T number_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

struct HashState {
  HashState() : state(XXH3_createState()) {
    WINNOW_CHECK(state != nullptr);
    XXH3_64bits_reset(state);
  }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;

  XXH3_state_t* const state;
};

// Writes to a file what its checksum is of.
class HashedFile {
 public:
  explicit HashedFile(const std::string& path) : file_(path) {}

  void write(std::span<const std::byte> bytes) {
    XXH3_64bits_update(hash_.state, bytes.data(), bytes.size());
    file_.write(bytes);
  }
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void finish() {
    const uint64_t checksum = XXH3_64bits_digest(hash_.state);
    file_.write(std::as_bytes(std::span(&checksum, 1)));
    file_.finish();
  }

 private:
  NewFile file_;
  HashState hash_;
};

std::string bytes_text(uint64_t n_bytes) {
  return std::to_string(n_bytes) + " bytes";
}

// Throws bad_data, or unsupported for another version: the form of the whole file, whatever its sections hold.
void check_form(const MappedFile& file, const SectionFormat& format) {
  const std::span<const std::byte> bytes = file.bytes();
  const std::string kind = format.name;
  const auto refuse = [&](ErrorCode code, const std::string& problem) {
    throw Error(code, "'" + file.path() + "' " + problem);
  };
  const size_t n_magic = std::min(bytes.size(), format.magic.size());
  if (std::memcmp(bytes.data(), format.magic.data(), n_magic) != 0) {
    refuse(ErrorCode::kBadData, "is not a " + kind + " of winnow: it does not begin as one");
  }
  if (bytes.size() < kHeaderBytes + kChecksumBytes) {
    refuse(ErrorCode::kBadData,
           "was cut off: it has " + bytes_text(bytes.size()) + ", less than the smallest " + kind);
  }
  const auto n_stated = number_at<uint64_t>(bytes, 16);
  if (n_stated != bytes.size()) {
    refuse(
        ErrorCode::kBadData,
        std::string(n_stated > bytes.size() ? "was cut off" : "is damaged, or more was appended") +
            ": it has " + bytes_text(bytes.size()) + " and states " + bytes_text(n_stated));
  }
  const size_t n_hashed = bytes.size() - kChecksumBytes;
  if (XXH3_64bits(bytes.data(), n_hashed) != number_at<uint64_t>(bytes, n_hashed)) {
    refuse(ErrorCode::kBadData, "is damaged: its checksum is not that of its bytes");
  }
  const auto version = number_at<uint32_t>(bytes, 8);
  if (version != format.version) {
    refuse(ErrorCode::kUnsupported, "is a " + kind + " of version " + std::to_string(version) +
                                        "; this winnow reads version " +
                                        std::to_string(format.version));
  }
}

}  // namespace

uint64_t SectionWriter::Section::n_bytes() const {
  uint64_t n = 0;
  for (const Piece& piece : pieces) {
    n += piece.bytes().size();
  }
  return n;
}

void SectionWriter::begin(std::string_view name) {
  sections_.push_back({.name = std::string(name), .pieces = {}});
}

void SectionWriter::put_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return;
  }
  std::vector<Piece>& pieces = sections_.back().pieces;
  if (pieces.empty() || !pieces.back().referred.empty()) {
    pieces.emplace_back();
  }
  pieces.back().copied.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void SectionWriter::put_text(std::string_view text) {
  put(static_cast<uint32_t>(text.size()));
  put_bytes(std::as_bytes(std::span(text)));
}

void SectionWriter::refer(std::span<const std::byte> bytes) {
  if (!bytes.empty()) {
    sections_.back().pieces.push_back({.copied = {}, .referred = bytes});
  }
}

void SectionWriter::write(const std::string& path, const SectionFormat& format) const {
  std::vector<std::string> heads;  // what stands before each section's content
  uint64_t n_bytes = kHeaderBytes + kChecksumBytes;
  for (const Section& section : sections_) {
    std::string& head = heads.emplace_back();
    append(head, static_cast<uint32_t>(section.name.size()));
    head += section.name;
    append(head, section.n_bytes());
    n_bytes += head.size() + section.n_bytes();
  }
  std::string header(format.magic.data(), format.magic.size());
  append(header, format.version);
  append(header, static_cast<uint32_t>(sections_.size()));
  append(header, n_bytes);

  HashedFile file(path);
  file.write(header);
  for (size_t i = 0; i < sections_.size(); ++i) {
    file.write(heads[i]);
    for (const Piece& piece : sections_[i].pieces) {
      file.write(piece.bytes());
    }
  }
  file.finish();
}

void SectionReader::fail(const std::string& problem) const {
  throw Error(ErrorCode::kBadData, where_ + ": " + problem);
}

void SectionReader::check_left(size_t n, size_t size) const {
  if (n > bytes_.size() / size) {
    fail("it ends too early");
  }
}

std::span<const std::byte> SectionReader::take(size_t n_bytes) {
  check_left(n_bytes, 1);
  const std::span<const std::byte> taken = bytes_.first(n_bytes);
  bytes_ = bytes_.subspan(n_bytes);
  return taken;
}

int SectionReader::get_int(const char* what, int low, int high) {
  const auto value = get<int32_t>();
  if (value < low || value > high) {
    fail(std::string(what) + " is " + std::to_string(value) + " (allowed: " + std::to_string(low) +
         " to " + std::to_string(high) + ")");
  }
  return value;
}

bool SectionReader::get_flag(const char* what) {
  const auto value = get<uint8_t>();
  if (value > 1) {
    fail(std::string(what) + " is " + std::to_string(value) + ", neither 0 nor 1");
  }
  return value == 1;
}

std::string SectionReader::get_text() {
  const std::span<const std::byte> bytes = take(get<uint32_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void SectionReader::expect_end() const {
  if (!bytes_.empty()) {
    fail(std::to_string(bytes_.size()) + " bytes more than are expected");
  }
}

SectionFile::SectionFile(const std::string& path, const SectionFormat& format)
    : kind_(format.name), file_(std::make_unique<MappedFile>(path)) {
  check_form(*file_, format);
  const std::span<const std::byte> bytes = file_->bytes();
  const std::string where = "'" + path + "' is damaged";
  SectionReader reader(where,
                       bytes.subspan(kHeaderBytes, bytes.size() - kHeaderBytes - kChecksumBytes));
  const auto n_sections = number_at<uint32_t>(bytes, 12);
  for (uint32_t i = 0; i < n_sections; ++i) {
    std::string name = reader.get_text();
    if (has(name)) {
      reader.fail("section '" + name + "' is there twice");
    }
    const auto n_bytes = reader.get<uint64_t>();
    sections_.push_back({.name = std::move(name), .bytes = reader.take(n_bytes)});
  }
  reader.expect_end();
}

bool SectionFile::has(std::string_view name) const {
  return std::ranges::find(sections_, name, &Section::name) != sections_.end();
}

SectionReader SectionFile::read(std::string_view name) {
  const auto section = std::ranges::find(sections_, name, &Section::name);
  if (section == sections_.end()) {
    throw Error(ErrorCode::kBadData, "'" + path() + "' has no section '" + std::string(name) + "'");
  }
  section->is_read = true;
  return {"'" + path() + "', section '" + section->name + "'", section->bytes};
}

void SectionFile::refuse_others() const {
  const auto other = std::ranges::find(sections_, false, &Section::is_read);
  if (other != sections_.end()) {
    throw Error(ErrorCode::kUnsupported, "'" + path() + "' is a " + kind_ + " with a section '" +
                                             other->name + "', which this winnow does not know");
  }
}

}  // namespace winnow
