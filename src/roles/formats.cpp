#include "roles/formats.h"

#include <array>

#include "base/error.h"
#include "base/nearest_name.h"

namespace winnow::roles {
namespace {

class None final : public Labeller {
 public:
  void label(std::string_view text, bool /*is_end*/, Spans& spans) override {
    spans.add(text.size(), Role::kProse);
  }
};

}  // namespace

std::unique_ptr<Labeller> make_none() {
  return std::make_unique<None>();
}

const Format& find_format(std::string_view name) {
  std::array<std::string_view, std::size(kFormats)> names;
  std::ranges::transform(kFormats, names.begin(), &Format::name);
  const auto found = std::ranges::find(kFormats, name, &Format::name);
  if (found == std::ranges::end(kFormats)) {
    throw Error(ErrorCode::kInvalidArgument, unknown_name("format", name, names));
  }
  return *found;
}

}  // namespace winnow::roles
