#include "eval/haystack.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "model/utf8.h"

namespace winnow::eval {
namespace {

// Said again and again by "repeat".
const std::vector<std::string> kPassage = {
    "Leaves fall in October.", "Snow covers the hills in January.", "Rivers swell in April.",
    "The evenings are long in July.", "Then the year begins anew."};

std::string read_haystack(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return read_utf8_file(path);
  }
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::directory_iterator(path, error)) {
    if (file.is_regular_file(error)) {
      paths.push_back(file.path().string());
    }
  }
  std::ranges::sort(paths);
  std::string text;
  for (const std::string& each : paths) {
    text += read_utf8_file(each) + "\n\n";
  }
  return text;
}

}  // namespace

std::string haystack_to_open(const std::string& what, const policy::OptionReader& reader) {
  return reader.problems().empty() ? what : "noise";
}

double depth_of(int index, int n_depths) {
  return static_cast<double>(index % n_depths) / (n_depths - 1);
}

std::string read_utf8_file(const std::string& path) {
  std::string text = read_text_file(path);
  if (const auto offset = model::first_invalid_utf8(text)) {
    throw Error(ErrorCode::kBadData, path + " is not UTF-8: byte " + std::to_string(*offset) +
                                         " cannot be part of a character");
  }
  return text;
}

const std::vector<std::string>& bland_sentences() {
  static const std::vector<std::string> sentences = {
      "The council will publish its minutes at the end of the month.",
      "Several visitors asked where they might leave their bicycles.",
      "A new roof was fitted to the sports hall before the rain came.",
      "Deliveries to the upper floors are made before the shop opens.",
      "The choir practises on Tuesdays unless the room is needed.",
      "Most of the seedlings were moved outdoors once the frost was over.",
      "Visitors to the reading room are asked to speak quietly.",
      "The second shift begins once the machines have been cleaned.",
      "Repairs to the footpath took rather longer than anyone thought.",
      "Lunch is served in the canteen between noon and two.",
  };
  return sentences;
}

Haystack::Haystack(const std::string& what)
    : kind_(what == "repeat"  ? Kind::kRepeat
            : what == "noise" ? Kind::kNoise
                              : Kind::kText) {
  switch (kind_) {
    case Kind::kRepeat:
      sentences_ = kPassage;
      break;
    case Kind::kNoise:
      sentences_ = bland_sentences();
      break;
    case Kind::kText:
      sentences_ = split_sentences(read_haystack(what));
      if (sentences_.empty()) {
        throw Error(ErrorCode::kInvalidArgument, "haystack " + what + " has no text");
      }
      break;
  }
}

Filler Haystack::filler(PythonRandom random) const {
  const size_t n = sentences_.size();
  const size_t start =
      kind_ == Kind::kText ? static_cast<size_t>(random.below(std::ssize(sentences_))) : 0;
  // A std::function is copied, so its state is shared.
  auto state = std::make_shared<std::pair<PythonRandom, size_t>>(random, 0);
  return [this, state, start, n]() -> std::optional<std::string> {
    auto& [own_random, n_given] = *state;
    const size_t i = n_given++;
    if (kind_ == Kind::kNoise) {
      return own_random.choice(sentences_);
    }
    if (kind_ == Kind::kText && i == n) {
      --n_given;
      return std::nullopt;
    }
    return sentences_[(start + i) % n];
  };
}

std::vector<std::string> split_sentences(std::string_view text) {
  std::vector<std::string> sentences;
  std::string sentence;
  bool is_after_end = false;
  const auto finish = [&] {
    if (!sentence.empty()) {
      sentences.push_back(std::move(sentence));
      sentence.clear();
    }
  };
  for (const char c : text) {
    const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!is_space) {
      sentence += c;
      const bool is_closing = c == '"' || c == '\'' || c == ')';
      is_after_end = c == '.' || c == '!' || c == '?' || (is_after_end && is_closing);
    } else if (is_after_end) {
      finish();
      is_after_end = false;
    } else if (!sentence.empty() && sentence.back() != ' ') {
      sentence += ' ';
    }
  }
  sentence = trim(sentence);
  finish();
  return sentences;
}

std::string with_facts(std::span<const std::string> filler, std::span<const std::string> facts,
                       std::span<const double> places) {
  WINNOW_CHECK(facts.size() == places.size());
  std::vector<size_t> order(facts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return places[i]; });
  // Places are shares of the filler's characters, since sentences differ in length.
  size_t n_characters = 0;
  for (const std::string& sentence : filler) {
    n_characters += sentence.size();
  }
  std::vector<std::string> parts;
  size_t n_before = 0;
  auto next = order.begin();
  const auto add_facts_up_to = [&](double n) {
    while (next != order.end() && places[*next] * static_cast<double>(n_characters) <= n) {
      parts.push_back(facts[*next++]);
    }
  };
  for (const std::string& sentence : filler) {
    // Before the sentence, when its middle lies behind the place.
    add_facts_up_to(static_cast<double>(n_before) + 0.5 * static_cast<double>(sentence.size()));
    parts.push_back(sentence);
    n_before += sentence.size();
  }
  while (next != order.end()) {
    parts.push_back(facts[*next++]);
  }
  return joined(parts, " ");
}

}  // namespace winnow::eval
