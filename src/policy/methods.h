// The list of eviction methods. Adding one: a file in scorers/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policy/option_reader.h"
#include "policy/scorer.h"

namespace winnow::policy {

struct Method {
  std::string_view name;  // as users type it
  std::string_view kind;  // what the worth comes from: none, position, key, value, attention, …
  bool is_path_independent;  // given K and V, the kept rows do not depend on how the input was cut
  // Null: the method keeps everything. Called with an empty reader to describe the method's options, so a maker
  // opens no file and does not throw.
  std::unique_ptr<Scorer> (*make)(OptionReader&);
  std::string_view cost;  // of each eviction, beside selecting
  int slack;  // by default: as many rows as make evictions while decoding cost a small part of a token
  std::string_view help;
  // Which of the last rows the method prefers by itself, beside those that the option n_recent protects.
  std::string_view own_guard = "none";
  bool needs_file = false;  // one of its options names a file that must be there
  // Where a spec names no allocator of layers or heads.
  std::string_view allocator = "uniform";
};

std::unique_ptr<Scorer> make_expected_attention(OptionReader&);
std::unique_ptr<Scorer> make_h2o(OptionReader&);
std::unique_ptr<Scorer> make_keydiff(OptionReader&);
std::unique_ptr<Scorer> make_knorm(OptionReader&);
std::unique_ptr<Scorer> make_kvzip(OptionReader&);
std::unique_ptr<Scorer> make_lagkv(OptionReader&);
std::unique_ptr<Scorer> make_qfilters(OptionReader&);
std::unique_ptr<Scorer> make_qfilters_keysvd(OptionReader&);
std::unique_ptr<Scorer> make_quest(OptionReader&);
std::unique_ptr<Scorer> make_random(OptionReader&);
std::unique_ptr<Scorer> make_snapkv(OptionReader&);
std::unique_ptr<Scorer> make_streaming(OptionReader&);
std::unique_ptr<Scorer> make_tova(OptionReader&);

inline constexpr Method kMethods[] = {
    {"expected-attention", "statistics", false, make_expected_attention,
     "a product of each key with a matrix of each query head, and reads each value", 64,
     "keeps the rows that later queries should attend to, judged by the queries so far"},
    {"full", "none", true, nullptr, "none", 0, "keeps every row: the full cache"},
    {"h2o", "attention", false, make_h2o,
     "reads 8 bytes a row, summed up while attention is computed", 0,
     "keeps the rows that have received most attention from all queries so far"},
    {"keydiff", "key", false, make_keydiff, "reads each key twice", 16,
     "keeps the rows whose keys point elsewhere than the mean key"},
    {"knorm", "key", true, make_knorm, "reads 4 bytes a row, written at append", 0,
     "keeps the rows whose keys have the lowest L2 norm"},
    {"kvzip", "attention", false, make_kvzip,
     "reads 4 bytes a row, written when its document is replayed: that takes longer than reading "
     "it",
     16, "keeps the rows that the model needs to repeat the document",
     "rows that were read or generated after the document", false, "pool"},
    {"lagkv", "value", false, make_lagkv, "reads each key and value twice", 16,
     "keeps the rows whose channels spread most, measured by the rows after them",
     "the last partition of lag rows, and the rest"},
    {"qfilters", "projection", true, make_qfilters, "reads 4 bytes a row, written at append", 0,
     "keeps the rows whose keys reach farthest along a direction that was calibrated from queries",
     "none", true},
    {"qfilters@keysvd", "projection", false, make_qfilters_keysvd, "reads each key", 16,
     "keeps the rows whose keys reach farthest along a direction of the first keys, either way"},
    {"quest", "attention", false, make_quest, "reads each key", 16,
     "keeps whole pages of rows whose keys may reach farthest along the last queries"},
    {"random", "none", true, make_random, "a hash of each row's position", 0,
     "keeps rows at random: the floor any method must beat"},
    {"snapkv", "attention", false, make_snapkv,
     "attention of obs_window queries of each query head, without the values", 64,
     "keeps the rows that the last queries attend to, and their neighbours",
     "the rows of the obs_window last queries, unless force_window=false"},
    {"streaming", "position", true, make_streaming, "none", 0,
     "keeps the first n_sink and the last rows", "all rows but the sinks"},
    {"tova", "attention", false, make_tova,
     "attention of one query of each query head, without the values", 16,
     "keeps the rows that the last query attends to"},
};
static_assert(std::ranges::is_sorted(kMethods, {}, &Method::name), "kMethods is sorted by name");

// Throws invalid_argument with the nearest name and the list.
const Method& find_method(std::string_view name);

// What a method reads, with its options at their defaults; and as describe() says it.
Needs needs_of(const Method& method);
std::vector<std::string> describe_needs(const Method& method);

// A method's own options, without those every policy has (describe_policy_options()).
std::vector<OptionDescription> describe_options(const Method& method);

}  // namespace winnow::policy
