// The text that facts are hidden in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/prompt_length.h"
#include "eval/random.h"

namespace winnow::eval {

// Sentences without meaning for any task; noise draws from them.
const std::vector<std::string>& bland_sentences();

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
