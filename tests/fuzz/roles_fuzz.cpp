// Structured texts of any bytes: every byte gets one label in every format, whatever pieces the text comes in.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <vector>

#include "roles/stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// The first byte chooses the format, the second one the pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using winnow::roles::Span;
  if (size < 2) {
    return 0;
  }
  const winnow::roles::Format& format =
      winnow::roles::kFormats[data[0] % std::size(winnow::roles::kFormats)];
  const size_t n_piece = data[1] + size_t{1};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::vector<Span> whole = winnow::roles::label_text(text, format);
  size_t end = 0;
  for (const Span& span : whole) {
    if (span.begin != end || span.end <= span.begin || span.label.depth < 0) {
      std::abort();
    }
    end = span.end;
  }
  winnow::roles::Stream stream(format);
  std::vector<Span> spans;
  std::vector<Span> more;
  const auto take = [&] {
    stream.take(more);
    spans.insert(spans.end(), more.begin(), more.end());
  };
  for (size_t at = 0; at < text.size(); at += n_piece) {
    stream.feed(text.substr(at, n_piece));
    take();
  }
  stream.finish();
  take();
  if (end != text.size() || spans != whole) {
    std::abort();
  }
  return 0;
}
