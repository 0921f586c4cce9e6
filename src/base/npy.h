// Writes arrays that NumPy reads.
#pragma once

#include <span>
#include <string>

namespace winnow {

// values [n_rows, n_columns] float32 -> a version 1.0 .npy file. Throws io.
void write_npy(const std::string& path, std::span<const float> values, size_t n_columns);

}  // namespace winnow
