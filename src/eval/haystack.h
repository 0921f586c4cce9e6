// The text that facts are hidden in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/prompt_length.h"
#include "eval/random.h"
#include "policy/option_reader.h"

namespace winnow::eval {

// Sentences without meaning for any task; noise draws from them.
const std::vector<std::string>& bland_sentences();

// The option of tasks that hide something: its form and help.
inline constexpr std::string_view kHaystackForm = "noise, repeat, or a text FILE or folder";

// `what`, unless options were refused: no file is looked for on their behalf.
std::string haystack_to_open(const std::string& what, const policy::OptionReader& reader);

// Where sample `index` hides it: n_depths >= 2 depths from 0 to 1, in turn.
double depth_of(int index, int n_depths);

// A whole text file. Throws not_found, io, or bad_data for one that is not UTF-8.
std::string read_utf8_file(const std::string& path);

class Haystack {
 public:
  // "repeat": a short passage over and over; "noise": bland sentences at random; else a text file, or a folder whose
  // text files are read in order of their names. Throws not_found, io, or bad_data for a file that is not UTF-8.
  explicit Haystack(const std::string& what);

  // Sentences without end; of a file from a drawn sentence on, once around. Refers to the haystack, and draws from
  // `random`, which it copies, only for its sentences.
  Filler filler(PythonRandom random) const;

 private:
  enum class Kind { kRepeat, kNoise, kText };
  Kind kind_;
  std::vector<std::string> sentences_;
};

// The sentences of prose, each on one line; an end is a full stop, question or exclamation mark before a space.
std::vector<std::string> split_sentences(std::string_view text);

// The body of a text with `facts` between the sentences of filler: fact i stands where the share places[i] of the filler
// lies before it. Facts of equal places keep their order.
std::string with_facts(std::span<const std::string> filler, std::span<const std::string> facts,
                       std::span<const double> places);

}  // namespace winnow::eval
