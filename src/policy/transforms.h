// The list of transforms. Adding one: a file in transforms/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policy/option_reader.h"
#include "policy/transform.h"

namespace winnow::policy {

struct TransformPart {
  std::string_view name;  // as users type it
  // One of the two. Called with an empty reader to describe the options.
  std::unique_ptr<Normalizer> (*make_normalizer)(OptionReader&);
  std::unique_ptr<SecondStage> (*make_second_stage)(OptionReader&);
  std::string_view cost;  // of each eviction, beside scoring and selecting
  std::string_view help;
  // Options that it gives where the spec does not, as a spec has them.
  std::string_view implied = "";
};

std::unique_ptr<SecondStage> make_blockwise(OptionReader&);
std::unique_ptr<SecondStage> make_chunkkv(OptionReader&);
std::unique_ptr<SecondStage> make_chunkwise(OptionReader&);
std::unique_ptr<SecondStage> make_criticalkv(OptionReader&);
std::unique_ptr<Normalizer> make_rank(OptionReader&);
std::unique_ptr<Normalizer> make_softmax(OptionReader&);
std::unique_ptr<SecondStage> make_threshold(OptionReader&);

inline constexpr TransformPart kTransforms[] = {
    {"blockwise", nullptr, make_blockwise,
     "scores a head's share and a block of rows, once for each block of the rest",
     "chooses as if rows had come block by block and been cut each time"},
    {"chunkkv", nullptr, make_chunkkv, "reads the scores twice",
     "keeps whole chunks of neighbouring rows: those with the highest mean score"},
    {"chunkwise", nullptr, make_chunkwise, "selects once more",
     "every part of the text keeps the same share of its rows, the best of them"},
    {"criticalkv", nullptr, make_criticalkv,
     "once for each row a product with each query head's part of the output projection; 4 bytes "
     "a row",
     "half of the rows by their scores, the others also by what their values do to the output"},
    {"rank", make_rank, nullptr, "sorts the scores",
     "replaces a score by its rank among those of the head"},
    {"softmax", make_softmax, nullptr, "reads the scores twice",
     "replaces a head's scores by their softmax, in units of their standard deviation"},
    {"threshold", nullptr, make_threshold, "reads the scores once more",
     "keeps the rows whose scores are high enough, up to the budget", "budget=100%,n_recent=0"},
};
static_assert(std::ranges::is_sorted(kTransforms, {}, &TransformPart::name),
              "kTransforms is sorted by name");

// Null where there is none of that name.
const TransformPart* find_transform(std::string_view name);

std::vector<OptionDescription> describe_options(const TransformPart& part);

// What it reads beside scores, with its options at their defaults, as describe() says it.
std::vector<std::string> describe_needs(const TransformPart& part);

}  // namespace winnow::policy
