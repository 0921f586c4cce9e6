#include "engine/output_projection.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "ggml.h"

namespace winnow::engine {
namespace {

// Elements that are brought to floats at once where blocks do not begin and end with the columns asked for: as many as
// the largest block has.
constexpr int64_t kMostBlockElements = 256;

// Elements [first, first + n) of a matrix row.
void read_row(ggml_type type, const std::byte* row, int64_t first, int64_t n, float* to) {
  if (type == GGML_TYPE_F32) {
    std::memcpy(to, row + static_cast<size_t>(first) * sizeof(float),
                static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const auto to_float = ggml_get_type_traits(type)->to_float;
  const int64_t block = ggml_blck_size(type);
  WINNOW_CHECK(to_float != nullptr && block <= kMostBlockElements);
  const auto at = [&](int64_t element) {
    return row + static_cast<size_t>(element / block) * ggml_type_size(type);
  };
  std::array<float, kMostBlockElements> floats;
  while (n > 0) {
    const int64_t offset = first % block;
    int64_t n_read = n / block * block;
    if (offset == 0 && n_read > 0) {
      to_float(at(first), to, n_read);
    } else {
      n_read = std::min(block - offset, n);
      to_float(at(first), floats.data(), block);
      std::copy_n(floats.data() + offset, n_read, to);
    }
    first += n_read;
    n -= n_read;
    to += n_read;
  }
}

}  // namespace

void OutputProjection::read(int layer, const Part& part, float* to) const {
  const ggml_tensor* const matrix = model_.weights().layers[static_cast<size_t>(layer)].wo;
  WINNOW_CHECK(part.first_row >= 0 && part.first_row + part.n_rows <= matrix->ne[1] &&
               part.first_column >= 0 && part.first_column + part.n_columns <= matrix->ne[0]);
  for (int i = 0; i < part.n_rows; ++i) {
    const std::byte* const row = static_cast<const std::byte*>(matrix->data) +
                                 static_cast<size_t>(part.first_row + i) * matrix->nb[1];
    read_row(matrix->type, row, part.first_column, part.n_columns,
             to + static_cast<std::ptrdiff_t>(i) * part.n_columns);
  }
}

}  // namespace winnow::engine
