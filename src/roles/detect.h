// Tells formats from the beginnings of texts.
#pragma once

#include <cstddef>
#include <string_view>

namespace winnow::roles {

// How much of a text is looked at.
inline constexpr size_t kSniffed = 8192;

// The name of the format that a text begins with, from its first kSniffed bytes, or the whole where it is shorter; empty
// where it looks like none.
std::string_view detect(std::string_view beginning);

// Whether `text` begins with JSON, as far as it goes: brackets with a key, a string or several values, and nothing else.
// `n_read` is how many bytes that took.
bool begins_with_json(std::string_view text, size_t& n_read);

// Whether a time stamp is among the first words of a line.
bool begins_with_time(std::string_view line);
bool begins_with_time_and_level(std::string_view line);

// Whether elements of this name are HTML's.
bool is_html_name(std::string_view name);

// Whether `text` begins with a mark of chat templates: "<|im_start|>".
bool begins_with_mark(std::string_view text);

// The length of a speaker's name and its colon that a line begins with: "User:"; 0 where there is none.
size_t speaker_length(std::string_view line);

// The name of the element that `text` begins with, "<" before it; empty where it begins with none.
std::string_view element_name(std::string_view text);

}  // namespace winnow::roles
