// Labellers of blocks that end by themselves, in texts that go on in another format.
#pragma once

#include <memory>
#include <string_view>

#include "roles/labeller.h"

namespace winnow::roles {

// JSON up to the last bracket, or up to what cannot be part of it; lines that begin with the same bracket belong to it.
std::unique_ptr<Labeller> make_json_block();

// One element, up to its end tag; `name` is its format, "html" or "xml".
std::unique_ptr<Labeller> make_element_block(std::string_view name);

// What detect() says of its beginning; none where it says nothing. Never done.
std::unique_ptr<Labeller> make_detected();

}  // namespace winnow::roles
