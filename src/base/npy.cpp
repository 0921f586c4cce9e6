#include "base/npy.h"

#include "base/error.h"
#include "base/files.h"

namespace winnow {

void write_npy(const std::string& path, std::span<const float> values, size_t n_columns) {
  WINNOW_CHECK(n_columns > 0 && values.size() % n_columns == 0);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(values.size() / n_columns) + ", " +
                       std::to_string(n_columns) + "), }";
  constexpr size_t kPreamble = 10;  // magic, version, header length
  while ((kPreamble + header.size() + 1) % 64 != 0) {
    header += ' ';
  }
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() % 256);
  file += static_cast<char>(header.size() / 256);
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  write_file_atomically(path, file);
}

}  // namespace winnow
