// Arrays as NumPy stores them: .npy files, and the members of .npz files (base/npz.h). Little-endian, C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// An array that somebody else owns.
struct NpyArray {
  std::string type;           // NumPy's name of it: "<f4" is float32, "<i8" int64, "|b1" bool
  std::vector<size_t> shape;  // empty: one number
  std::span<const std::byte> bytes;

  size_t n_elements() const;
  std::string shape_text() const;  // "[2, 24, 8]"
};

// Of formats 1.0 to 3.0. `name` is what messages call it. Throws bad_data, or unsupported: elements that are no little-endian
// numbers of 1 to 8 bytes, booleans or texts, Fortran order.
NpyArray parse_npy(std::span<const std::byte> file, const std::string& name);

// Format 1.0.
std::string format_npy(const NpyArray& array);

// Elements as float, of f16, f32, f64 or integers. Throws unsupported for another type, bad_data where a finite element is
// beyond float.
std::vector<float> npy_floats(const NpyArray& array, const std::string& name);
// Of i32 or i64 elements. Throws unsupported for another type.
std::vector<int64_t> npy_integers(const NpyArray& array, const std::string& name);

// values [n_rows, n_columns] float32 -> a .npy file. Throws io.
void write_npy(const std::string& path, std::span<const float> values, size_t n_columns);

}  // namespace winnow
