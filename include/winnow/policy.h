// What a session keeps in its cache: a method, allocators, a budget and options (docs/policies.md).
#pragma once

#include <string>
#include <string_view>

#include "winnow/error.h"

namespace winnow {

// A value: one policy may serve any number of sessions.
class Policy {
 public:
  // Keeps every row.
  Policy() = default;

  // A spec such as "knorm:budget=512,n_sink=4", "knorm+adakv:budget=10%" or "full". `default_budget` ("512", "10%",
  // "64MiB"; may be empty) is used when the spec has none. Throws invalid_argument, naming all problems at once.
  static Policy parse(std::string_view spec, std::string_view default_budget = {});

  // The canonical spec: the method, its allocators and every option that is not at its default. Parses to the same policy.
  const std::string& spec() const { return spec_; }

 private:
  std::string spec_ = "full";
};

}  // namespace winnow
