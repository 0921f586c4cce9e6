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
  // What preset=seed gives beside or in place of its other options, as a spec has them.
  std::string_view seed = "";
};

std::unique_ptr<Scorer> make_cam_proxy(OptionReader&);
std::unique_ptr<Scorer> make_chunkkv_proxy(OptionReader&);
std::unique_ptr<Scorer> make_capkv(OptionReader&);
std::unique_ptr<Scorer> make_compactor(OptionReader&);
std::unique_ptr<Scorer> make_cur(OptionReader&);
std::unique_ptr<Scorer> make_expected_attention(OptionReader&);
std::unique_ptr<Scorer> make_finch(OptionReader&);
std::unique_ptr<Scorer> make_h2o(OptionReader&);
std::unique_ptr<Scorer> make_h2o_proxy(OptionReader&);
std::unique_ptr<Scorer> make_keydiff(OptionReader&);
std::unique_ptr<Scorer> make_keyformer(OptionReader&);
std::unique_ptr<Scorer> make_keyformer_proxy(OptionReader&);
std::unique_ptr<Scorer> make_knorm(OptionReader&);
std::unique_ptr<Scorer> make_kvzip(OptionReader&);
std::unique_ptr<Scorer> make_lagkv(OptionReader&);
std::unique_ptr<Scorer> make_leverage(OptionReader&);
std::unique_ptr<Scorer> make_noncausal(OptionReader&);
std::unique_ptr<Scorer> make_plain_proxy(OptionReader&);
std::unique_ptr<Scorer> make_qfilters(OptionReader&);
std::unique_ptr<Scorer> make_qfilters_keysvd(OptionReader&);
std::unique_ptr<Scorer> make_quest(OptionReader&);
std::unique_ptr<Scorer> make_random(OptionReader&);
std::unique_ptr<Scorer> make_rkv(OptionReader&);
std::unique_ptr<Scorer> make_scissorhands(OptionReader&);
std::unique_ptr<Scorer> make_snapkv(OptionReader&);
std::unique_ptr<Scorer> make_snapkv_proxy(OptionReader&);
std::unique_ptr<Scorer> make_streaming(OptionReader&);
std::unique_ptr<Scorer> make_tova(OptionReader&);
std::unique_ptr<Scorer> make_tova_proxy(OptionReader&);

inline constexpr Method kMethods[] = {
    {"cam@proxy", "key as query", false, make_cam_proxy,
     "a product of each new key with all rows held, one after the other", 0,
     "as h2o@proxy, and rows leave their values to the rows with the most similar keys", "none"},
    {"capkv", "statistics", false, make_capkv,
     "for each query head two products of each value with half a matrix, in double, and one of "
     "each key",
     64,
     "keeps the rows that attention should go to and whose values the others cannot make up for"},
    {"chunkkv@proxy", "key as query", false, make_chunkkv_proxy,
     "a product of each new key with all rows held, one after the other", 0,
     "lets the chunk of rows go that later keys attend to least, while rows come", "none", false,
     "uniform", "drop_whole=true"},
    {"compactor", "attention", false, make_compactor, "those of leverage and noncausal", 64,
     "keeps the rows whose keys stand out, or that their neighbours attend to"},
    {"cur", "value", false, make_cur, "reads each value, and 4 bytes a row", 16,
     "keeps the rows whose keys and values are long beside those of the rows around them"},
    {"expected-attention", "statistics", false, make_expected_attention,
     "a product of each key with a matrix of each query head, and reads each value", 64,
     "keeps the rows that later queries should attend to, judged by the queries so far"},
    {"finch", "attention", false, make_finch,
     "attention of obs_window queries of each query head one by one, without the values", 64,
     "keeps the rows that the question attends to, each token of it as much as the others",
     "the rows of the obs_window last queries"},
    {"full", "none", true, nullptr, "none", 0, "keeps every row: the full cache"},
    {"h2o", "attention", false, make_h2o,
     "reads 8 bytes a row, summed up while attention is computed", 0,
     "keeps the rows that have received most attention from all queries so far"},
    {"h2o@proxy", "key as query", false, make_h2o_proxy,
     "a product of each new key with all rows held, one after the other", 0,
     "lets the row go that later keys attend to least, while rows come: h2o of a cache that sees "
     "no queries",
     "none", false, "uniform", "n_recent=16"},
    {"keydiff", "key", false, make_keydiff, "reads each key twice", 16,
     "keeps the rows whose keys point elsewhere than the mean key"},
    {"keyformer", "attention", false, make_keyformer,
     "reads 8 bytes a row, summed up while attention is computed; with noise=softmax attention of "
     "obs_window queries",
     0, "as h2o, with noise that each row keeps"},
    {"keyformer@proxy", "key as query", false, make_keyformer_proxy,
     "a product of each new key with all rows held, one after the other", 0,
     "as h2o@proxy, with noise that each row keeps", "none"},
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
    {"leverage", "key", false, make_leverage,
     "turns each key back; a product of each with `sketch` directions, and half a matrix of them, "
     "in double",
     64, "keeps the rows whose keys stand out from the others"},
    {"noncausal", "attention", false, make_noncausal,
     "reads each value, and 4 bytes a row, written when a chunk of tokens has been read", 16,
     "keeps the rows that their neighbours attend to, the earlier ones too"},
    {"pyramid@proxy", "key as query", false, make_plain_proxy,
     "a product of each new key with all rows held, one after the other", 0,
     "as h2o@proxy, with more rows in early layers than in late ones", "none", false,
     "pyramid@seed"},
    {"qfilters", "projection", true, make_qfilters, "reads 4 bytes a row, written at append", 0,
     "keeps the rows whose keys reach farthest along a direction that was calibrated from queries",
     "none", true},
    {"qfilters@keysvd", "projection", false, make_qfilters_keysvd, "reads each key", 16,
     "keeps the rows whose keys reach farthest along a direction of the first keys, either way"},
    {"quest", "attention", false, make_quest, "reads each key", 16,
     "keeps whole pages of rows whose keys may reach farthest along the last queries"},
    {"random", "none", true, make_random, "a hash of each row's position", 0,
     "keeps rows at random: the floor any method must beat"},
    {"rkv", "attention", false, make_rkv, "a product of each key with all keys", 64,
     "keeps the rows that the last queries attend to and that no later row repeats",
     "the rows of the obs_window last queries"},
    {"scissorhands", "attention", false, make_scissorhands,
     "attention of `history` queries of each query head, without the values", 64,
     "keeps the rows that the last queries most often gave more than their share"},
    {"snapkv", "attention", false, make_snapkv,
     "attention of obs_window queries of each query head, without the values", 64,
     "keeps the rows that the last queries attend to, and their neighbours",
     "the rows of the obs_window last queries, unless force_window=false"},
    {"snapkv@proxy", "key as query", false, make_snapkv_proxy,
     "a product of each of the last obs_window keys with all rows", 64,
     "keeps the rows that the last keys attend to", "none"},
    {"squeeze@proxy", "key as query", false, make_plain_proxy,
     "a product of each new key with all rows held, one after the other", 0,
     "as h2o@proxy, with fewer rows in layers whose keys point in one direction", "none", false,
     "squeeze@seed"},
    {"streaming", "position", true, make_streaming, "none", 0,
     "keeps the first n_sink and the last rows", "all rows but the sinks"},
    {"tova", "attention", false, make_tova,
     "attention of one query of each query head, without the values", 16,
     "keeps the rows that the last query attends to"},
    {"tova@proxy", "key as query", false, make_tova_proxy,
     "a product of each new key with all rows held, one after the other", 0,
     "lets the row go that each new key attends to least", "none"},
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
