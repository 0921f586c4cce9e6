#include "policy/filter_option.h"

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace winnow::policy {

FilterFile read_filter_file(OptionReader& reader, const std::string& name,
                            const std::string& path) {
  FilterFile file;
  try {
    const std::string content = read_text_file(path);
    const auto bytes = std::as_bytes(std::span(content));
    file.filters = std::make_shared<const Filters>(parse_filters(bytes, path));
    file.digest = content_hash(bytes);
    reader.give_default(name + "_digest", file.digest);
  } catch (const Error& error) {
    const bool is_named = std::string_view(error.what()).find(path) != std::string_view::npos;
    reader.add_problem((is_named ? name + "=" : name + "=" + path + ": ") +
                       std::string(error.what()));
  }
  return file;
}

void check_digest(OptionReader& reader, const std::string& name, const std::string& path,
                  const FilterFile& file, const std::string& digest) {
  if (file.filters != nullptr && digest != file.digest) {
    reader.add_problem(name + "=" + path + " has another content: its digest is " + file.digest +
                       ", not " + digest);
  }
}

}  // namespace winnow::policy
