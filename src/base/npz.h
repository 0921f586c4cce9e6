// Several named arrays in one file, as numpy.savez and numpy.savez_compressed write them: a zip archive of .npy files.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/npy.h"

namespace winnow {

class NpzFile {
 public:
  // Reads and checks all of an archive. `path` is what messages call it. Throws bad_data (no archive, damaged, a name that
  // is there twice), or unsupported: compressed by another method than deflate, encrypted, members that are no arrays, and
  // what parse_npy refuses.
  NpzFile(std::span<const std::byte> archive, std::string path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // sorted
  // Null where there is none of that name.
  const NpyArray* find(const std::string& name) const;
  // What messages call an array: "case.npz: K".
  std::string describe(const std::string& name) const { return path_ + ": " + name; }

 private:
  struct Member {
    std::vector<std::byte> file;
    NpyArray array;  // of the file's bytes
  };

  std::string path_;
  std::map<std::string, Member> members_;
};

// An archive of the arrays, uncompressed; the same arrays give the same bytes. Throws resource_exhausted.
std::string format_npz(std::span<const std::pair<std::string, NpyArray>> arrays);

}  // namespace winnow
