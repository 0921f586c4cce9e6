#include "base/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/files.h"

namespace winnow {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are little-endian, as memory is");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxDimensions = 32;  // as many as NumPy has

// Bytes of an element; 0 for a type that is not read. "<U12" is a text of 12 characters in UTF-32.
size_t type_bytes(std::string_view type) {
  for (const std::string_view known :
       {"<f2", "<f4", "<f8", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "|i1", "|u1", "|b1"}) {
    if (type == known) {
      return static_cast<size_t>(type[2] - '0');
    }
  }
  size_t n_characters = 0;
  if (type.starts_with("<U")) {
    const char* const end = type.data() + type.size();
    const auto [stop, error] = std::from_chars(type.data() + 2, end, n_characters);
    if (error == std::errc() && stop == end && n_characters <= size_t{1} << 20) {
      return 4 * n_characters;
    }
  }
  return 0;
}

// Reads the dictionary that describes an array: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  struct Header {
    std::optional<std::string> type;
    std::optional<bool> is_fortran;
    std::optional<std::vector<size_t>> shape;
  };

  Header read() {
    Header header;
    expect("{");
    while (!accept("}")) {
      const std::string key = quoted();
      expect(":");
      if (key == "descr" && !header.type) {
        header.type = quoted();
      } else if (key == "fortran_order" && !header.is_fortran) {
        header.is_fortran = accept("True");
        if (!*header.is_fortran) {
          expect("False");
        }
      } else if (key == "shape" && !header.shape) {
        header.shape = shape();
      } else {
        fail();
      }
      if (!accept(",")) {
        expect("}");
        break;
      }
    }
    skip_space();
    if (!text_.empty() || !header.type || !header.is_fortran || !header.shape) {
      fail();
    }
    return header;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::kBadData, name_ + ": its header does not describe a NumPy array");
  }

  void skip_space() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \n\t"), text_.size()));
  }
  bool accept(std::string_view word) {
    skip_space();
    if (!text_.starts_with(word)) {
      return false;
    }
    text_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) {
      fail();
    }
  }

  std::string quoted() {
    const char quote = accept("'") ? '\'' : '"';
    if (quote == '"') {
      expect("\"");
    }
    const size_t end = text_.find(quote);
    if (end == std::string_view::npos) {
      fail();
    }
    std::string word(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return word;
  }

  std::vector<size_t> shape() {
    std::vector<size_t> sizes;
    expect("(");
    while (!accept(")")) {
      skip_space();
      size_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || sizes.size() == kMaxDimensions) {
        fail();
      }
      sizes.push_back(size);
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      if (!accept(",")) {
        expect(")");
        break;
      }
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& name_;
};

// The product of the shape, or nothing where it is beyond `most`.
std::optional<size_t> product(std::span<const size_t> shape, size_t most) {
  if (std::ranges::find(shape, size_t{0}) != shape.end()) {
    return 0;
  }
  size_t n = 1;
  for (const size_t size : shape) {
    if (size > most / n) {
      return std::nullopt;
    }
    n *= size;
  }
  return n;
}

float half_to_float(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const auto fraction = static_cast<float>(half & 0x3ff);
  float value = 0;
  if (exponent == 0x1f) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(fraction + 1024, exponent - 25);
  }
  return half >> 15 != 0 ? -value : value;
}

template <typename T, typename To, typename Convert>
std::vector<To> converted(const NpyArray& array, const Convert& convert) {
  std::vector<To> all(array.bytes.size() / sizeof(T));
  for (size_t i = 0; i < all.size(); ++i) {
    T element;
    std::memcpy(&element, array.bytes.data() + i * sizeof(T), sizeof(T));
    all[i] = convert(element);
  }
  return all;
}

bool is_integer(std::string_view type) {
  return type.size() == 3 && (type[1] == 'i' || type[1] == 'u');
}

[[noreturn]] void refuse_type(const NpyArray& array, const std::string& name, const char* allowed) {
  throw Error(ErrorCode::kUnsupported, name + ": elements of type '" + array.type +
                                           "' (allowed: " + std::string(allowed) + ")");
}

}  // namespace

size_t NpyArray::n_elements() const {
  return product(shape, std::numeric_limits<size_t>::max()).value();
}

std::string NpyArray::shape_text() const {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

NpyArray parse_npy(std::span<const std::byte> file, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const auto fail = [&](const std::string& problem) -> void {
    throw Error(ErrorCode::kBadData, name + ": " + problem);
  };
  const size_t n_version = kMagic.size() + 2;
  if (!text.starts_with(kMagic) || text.size() < n_version + 2) {
    fail("not a NumPy array");
  }
  const auto byte = [&](size_t at) { return static_cast<size_t>(file[at]); };
  const size_t version = byte(kMagic.size());
  if (version < 1 || version > 3) {
    throw Error(ErrorCode::kUnsupported,
                name + ": NumPy format " + std::to_string(version) + " (allowed: 1 to 3)");
  }
  const size_t n_length = version == 1 ? 2 : 4;
  if (text.size() < n_version + n_length) {
    fail("cut off");
  }
  size_t n_header = 0;
  for (size_t i = n_length; i-- > 0;) {
    n_header = n_header * 256 + byte(n_version + i);
  }
  const size_t begin = n_version + n_length;
  if (n_header > text.size() - begin) {
    fail("cut off");
  }
  const HeaderReader::Header header = HeaderReader(text.substr(begin, n_header), name).read();
  NpyArray array{.type = *header.type, .shape = *header.shape, .bytes = {}};
  const size_t element = type_bytes(array.type);
  if (element == 0) {
    refuse_type(array, name, "little-endian numbers, booleans and texts");
  }
  array.bytes = file.subspan(begin + n_header);
  const std::optional<size_t> n =
      product(array.shape, std::numeric_limits<size_t>::max() / element);
  if (!n || *n * element != array.bytes.size()) {
    fail("of shape " + array.shape_text() + " and type '" + array.type + "', but has " +
         std::to_string(array.bytes.size()) + " bytes");
  }
  if (*header.is_fortran && array.shape.size() > 1) {
    throw Error(
        ErrorCode::kUnsupported,
        name + ": in Fortran order (allowed: C order, as numpy.ascontiguousarray makes it)");
  }
  return array;
}

std::string format_npy(const NpyArray& array) {
  WINNOW_CHECK(array.n_elements() * type_bytes(array.type) == array.bytes.size());
  std::string shape;
  for (const size_t size : array.shape) {
    shape += std::to_string(size) + ", ";
  }
  if (array.shape.size() > 1) {  // a tuple of one needs its comma
    shape.erase(shape.size() - 2);
  }
  std::string header =
      "{'descr': '" + array.type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr size_t kPreamble = 10;  // magic, version, header length
  while ((kPreamble + header.size() + 1) % 64 != 0) {
    header += ' ';
  }
  header += '\n';
  std::string file(kMagic);
  file += '\x01';
  file += '\x00';
  file += static_cast<char>(header.size() % 256);
  file += static_cast<char>(header.size() / 256);
  file += header;
  file.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return file;
}

std::vector<float> npy_floats(const NpyArray& array, const std::string& name) {
  if (array.type == "<f2") {
    return converted<uint16_t, float>(array, half_to_float);
  }
  if (array.type == "<f4") {
    return converted<float, float>(array, [](float value) { return value; });
  }
  if (array.type == "<f8") {
    return converted<double, float>(array, [&](double value) {
      const auto narrow = static_cast<float>(value);
      if (std::isfinite(value) && !std::isfinite(narrow)) {
        throw Error(ErrorCode::kBadData, name + ": an element is beyond float32");
      }
      return narrow;
    });
  }
  if (is_integer(array.type)) {
    const std::vector<int64_t> whole = npy_integers(array, name);
    return {whole.begin(), whole.end()};
  }
  refuse_type(array, name, "float16, float32, float64, integers");
}

std::vector<int64_t> npy_integers(const NpyArray& array, const std::string& name) {
  const auto widen = [](auto value) { return int64_t{value}; };
  if (array.type == "<i4") {
    return converted<int32_t, int64_t>(array, widen);
  }
  if (array.type == "<i8") {
    return converted<int64_t, int64_t>(array, widen);
  }
  if (array.type == "|i1") {
    return converted<int8_t, int64_t>(array, widen);
  }
  if (array.type == "<i2") {
    return converted<int16_t, int64_t>(array, widen);
  }
  if (array.type == "|u1") {
    return converted<uint8_t, int64_t>(array, widen);
  }
  if (array.type == "<u2") {
    return converted<uint16_t, int64_t>(array, widen);
  }
  if (array.type == "<u4") {
    return converted<uint32_t, int64_t>(array, widen);
  }
  if (array.type == "<u8") {
    return converted<uint64_t, int64_t>(array, [&](uint64_t value) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        throw Error(ErrorCode::kBadData, name + ": an element is beyond int64");
      }
      return static_cast<int64_t>(value);
    });
  }
  refuse_type(array, name, "integers");
}

void write_npy(const std::string& path, std::span<const float> values, size_t n_columns) {
  WINNOW_CHECK(n_columns > 0 && values.size() % n_columns == 0);
  write_file_atomically(path, format_npy({.type = "<f4",
                                          .shape = {values.size() / n_columns, n_columns},
                                          .bytes = std::as_bytes(values)}));
}

}  // namespace winnow
