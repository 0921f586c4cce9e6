#include "base/npz.h"

#include <zip.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace winnow {
namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr uint64_t kMostDeflated = 1032;   // bytes that one byte can stand for
constexpr uint16_t kDosDate = 1 << 5 | 1;  // 1980-01-01, the first there is

class ZipError {
 public:
  ZipError() { zip_error_init(&error_); }
  ~ZipError() { zip_error_fini(&error_); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;

  zip_error_t* get() { return &error_; }
  std::string text() { return zip_error_strerror(&error_); }

 private:
  zip_error_t error_{};
};

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
  void operator()(zip_source_t* source) const { zip_source_free(source); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using MemberFile = std::unique_ptr<zip_file_t, Discard>;
using Source = std::unique_ptr<zip_source_t, Discard>;

Archive open_archive(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.empty()) {  // which libzip takes for an archive without members
    throw Error(ErrorCode::kBadData, path + ": not a whole .npz file: it is empty");
  }
  ZipError error;
  Source source(zip_source_buffer_create(bytes.data(), bytes.size(), 0, error.get()));
  Archive archive(source == nullptr ? nullptr
                                    : zip_open_from_source(source.get(), ZIP_RDONLY | ZIP_CHECKCONS,
                                                           error.get()));
  if (archive == nullptr) {
    throw Error(ErrorCode::kBadData, path + ": not a whole .npz file: " + error.text());
  }
  static_cast<void>(source.release());  // the archive's now
  return archive;
}

// Checks the member's checksum at its end.
std::vector<std::byte> read_member(zip_t* archive, uint64_t index, uint64_t n_bytes,
                                   const std::string& where) {
  const MemberFile file(zip_fopen_index(archive, index, 0));
  if (file == nullptr) {
    throw Error(ErrorCode::kBadData, where + ": " + zip_strerror(archive));
  }
  std::vector<std::byte> bytes;
  for (;;) {  // the size is what the archive states, so memory grows with what is really there
    const size_t n_read = bytes.size();
    bytes.resize(n_read + std::min<uint64_t>(kPieceBytes, n_bytes - n_read + 1));
    const zip_int64_t n = zip_fread(file.get(), bytes.data() + n_read, bytes.size() - n_read);
    if (n < 0) {
      throw Error(ErrorCode::kBadData, where + ": " + zip_file_strerror(file.get()));
    }
    bytes.resize(n_read + static_cast<size_t>(n));
    if (n == 0) {
      break;
    }
    if (bytes.size() > n_bytes) {
      throw Error(ErrorCode::kBadData, where + ": longer than the archive states");
    }
  }
  if (bytes.size() != n_bytes) {
    throw Error(ErrorCode::kBadData, where + ": shorter than the archive states");
  }
  return bytes;
}

void check_member(const zip_stat_t& stat, const std::string& where) {
  constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                   ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((stat.valid & kNeeded) != kNeeded) {
    throw Error(ErrorCode::kBadData, where + ": the archive does not describe it");
  }
  if (stat.encryption_method != ZIP_EM_NONE) {
    throw Error(ErrorCode::kUnsupported, where + ": encrypted");
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    throw Error(ErrorCode::kUnsupported, where + ": compressed by method " +
                                             std::to_string(stat.comp_method) +
                                             " (allowed: stored, deflated)");
  }
  if (stat.size / kMostDeflated > stat.comp_size) {
    throw Error(ErrorCode::kBadData, where + ": " + std::to_string(stat.size) +
                                         " bytes cannot be in " + std::to_string(stat.comp_size));
  }
}

}  // namespace

NpzFile::NpzFile(std::span<const std::byte> archive, std::string path) : path_(std::move(path)) {
  const Archive zip = open_archive(archive, path_);
  const zip_int64_t n_members = zip_get_num_entries(zip.get(), 0);
  for (zip_int64_t i = 0; i < n_members; ++i) {
    const auto index = static_cast<uint64_t>(i);
    zip_stat_t stat;
    zip_stat_init(&stat);
    if (zip_stat_index(zip.get(), index, 0, &stat) != 0) {
      throw Error(ErrorCode::kBadData, path_ + ": " + zip_strerror(zip.get()));
    }
    std::string name = stat.name == nullptr ? "" : stat.name;
    if (!name.ends_with(kSuffix)) {
      throw Error(ErrorCode::kUnsupported, describe(name) + ": not an array (allowed: NAME.npy)");
    }
    name.erase(name.size() - kSuffix.size());
    const std::string where = describe(name);
    check_member(stat, where);
    const auto [member, is_new] = members_.try_emplace(name);
    if (!is_new) {
      throw Error(ErrorCode::kBadData, where + ": there twice");
    }
    member->second.file = read_member(zip.get(), index, stat.size, where);
    member->second.array = parse_npy(member->second.file, where);
  }
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) {
    names.push_back(name);
  }
  return names;
}

const NpyArray* NpzFile::find(const std::string& name) const {
  const auto member = members_.find(name);
  return member == members_.end() ? nullptr : &member->second.array;
}

std::string format_npz(std::span<const std::pair<std::string, NpyArray>> arrays) {
  const auto check = [](bool is_done) {  // in memory, only memory can be missing
    if (!is_done) {
      throw Error(ErrorCode::kResourceExhausted, "no memory for an archive of arrays");
    }
  };
  std::vector<std::string> files;
  for (const auto& [name, array] : arrays) {
    files.push_back(format_npy(array));
  }
  const Source target(zip_source_buffer_create(nullptr, 0, 0, nullptr));
  check(target != nullptr);
  zip_source_keep(target.get());  // the archive frees it once
  Archive archive(zip_open_from_source(target.get(), ZIP_TRUNCATE, nullptr));
  if (archive == nullptr) {
    zip_source_free(target.get());
  }
  check(archive != nullptr);
  for (size_t i = 0; i < arrays.size(); ++i) {
    Source source(zip_source_buffer(archive.get(), files[i].data(), files[i].size(), 0));
    check(source != nullptr);
    const zip_int64_t index =
        zip_file_add(archive.get(), (arrays[i].first + std::string(kSuffix)).c_str(), source.get(),
                     ZIP_FL_ENC_UTF_8);
    check(index >= 0);
    static_cast<void>(source.release());  // the archive's now
    const auto added = static_cast<uint64_t>(index);
    check(zip_set_file_compression(archive.get(), added, ZIP_CM_STORE, 0) == 0);
    check(zip_file_set_dostime(archive.get(), added, 0, kDosDate, 0) == 0);
  }
  check(zip_close(archive.get()) == 0);
  static_cast<void>(archive.release());  // closed

  check(zip_source_open(target.get()) == 0 && zip_source_seek(target.get(), 0, SEEK_END) == 0);
  std::string bytes(static_cast<size_t>(zip_source_tell(target.get())), '\0');
  check(zip_source_seek(target.get(), 0, SEEK_SET) == 0 &&
        zip_source_read(target.get(), bytes.data(), bytes.size()) ==
            static_cast<zip_int64_t>(bytes.size()));
  zip_source_close(target.get());
  return bytes;
}

}  // namespace winnow
