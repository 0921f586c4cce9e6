// Options that name a file of filters.
#pragma once

#include <memory>
#include <string>

#include "policy/filters.h"
#include "policy/option_reader.h"

namespace winnow::policy {

struct FilterFile {
  std::shared_ptr<const Filters> filters;  // null where there is no such file, or it is refused
  std::string digest;                      // of its content
};

// The file at `path`, which the option `name` gives. What is wrong with it becomes a problem. Where it is right, the digest is
// the default of the option name + "_digest", so that a spec tells which content is meant.
FilterFile read_filter_file(OptionReader& reader, const std::string& name, const std::string& path);

// A problem where the spec's digest is of another content.
void check_digest(OptionReader& reader, const std::string& name, const std::string& path,
                  const FilterFile& file, const std::string& digest);

}  // namespace winnow::policy
