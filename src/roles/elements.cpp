#include "roles/elements.h"

#include <algorithm>
#include <array>

#include "roles/bytes.h"

namespace winnow::roles {
namespace {

constexpr size_t kInnermost = 64;             // open elements among which an end tag finds its own
constexpr size_t kDeepest = size_t{1} << 20;  // deeper elements are counted, without their names

struct Named {
  std::string_view name;
  HtmlElement element;
};

constexpr HtmlElement kVoid{.is_void = true};
constexpr HtmlElement kEndedByNext{.is_ended_by_next = true};
constexpr HtmlElement kRawText{.holds_raw_text = true};

constexpr Named kNamed[] = {{"area", kVoid},        {"base", kVoid},
                            {"br", kVoid},          {"col", kVoid},
                            {"dd", kEndedByNext},   {"dt", kEndedByNext},
                            {"embed", kVoid},       {"hr", kVoid},
                            {"img", kVoid},         {"input", kVoid},
                            {"li", kEndedByNext},   {"link", kVoid},
                            {"meta", kVoid},        {"option", kEndedByNext},
                            {"p", kEndedByNext},    {"param", kVoid},
                            {"script", kRawText},   {"source", kVoid},
                            {"style", kRawText},    {"td", kEndedByNext},
                            {"textarea", kRawText}, {"th", kEndedByNext},
                            {"title", kRawText},    {"tr", kEndedByNext},
                            {"track", kVoid},       {"wbr", kVoid}};
static_assert(std::ranges::is_sorted(kNamed, {}, &Named::name), "found by their first letters");

// Where the names of each letter begin in kNamed.
constexpr auto kFirstOfLetter = [] {
  std::array<uint8_t, 27> first{};
  for (size_t letter = 0; letter < first.size(); ++letter) {
    while (first[letter] < std::size(kNamed) &&
           static_cast<size_t>(kNamed[first[letter]].name[0] - 'a') < letter) {
      ++first[letter];
    }
  }
  return first;
}();

uint32_t hash_of(std::string_view name) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return hash;
}

}  // namespace

HtmlElement html_element(std::string_view name) {
  if (name.empty() || !is_letter(name[0])) {
    return {};
  }
  const auto letter = static_cast<size_t>(name[0] - 'a');
  for (size_t i = kFirstOfLetter[letter]; i < kFirstOfLetter[letter + 1]; ++i) {
    if (kNamed[i].name == name) {
      return kNamed[i].element;
    }
  }
  return {};
}

void OpenElements::open(std::string_view name, bool is_ended_by_next) {
  const uint32_t hash = hash_of(name);
  if (is_ended_by_next && !open_.empty() && open_.back() == hash) {
    open_.pop_back();
  }
  if (open_.size() < kDeepest && n_deeper_ == 0) {
    open_.push_back(hash);
  } else {
    ++n_deeper_;
  }
}

bool OpenElements::close(std::string_view name) {
  if (n_deeper_ > 0) {
    --n_deeper_;
    return true;
  }
  const auto n = static_cast<std::ptrdiff_t>(std::min(open_.size(), kInnermost));
  const auto last = std::find(open_.rbegin(), open_.rbegin() + n, hash_of(name));
  if (last == open_.rbegin() + n) {
    return false;
  }
  open_.erase(last.base() - 1, open_.end());
  return true;
}

void OpenElements::close_last() {
  if (n_deeper_ > 0) {
    --n_deeper_;
  } else if (!open_.empty()) {
    open_.pop_back();
  }
}

}  // namespace winnow::roles
