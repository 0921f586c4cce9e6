// The policies that tests of all of them go through.
#pragma once

#include <string>
#include <vector>

#include "policy/methods.h"
#include "policy/policy.h"
#include "support/filters.h"

namespace winnow::test {

// Every method that evicts, with the given budget, and some with transforms and allocators, for layers of a shape.
inline std::vector<std::string> all_policies(int budget, const policy::FilterShape& shape) {
  const std::string rows = ":budget=" + std::to_string(budget);
  std::vector<std::string> specs{"knorm+pyramid" + rows,
                                 "knorm+adakv" + rows,
                                 "snapkv+pyramid+adakv" + rows + ",obs_window=8",
                                 "h2o+adakv" + rows + ",observed=true",
                                 "tova" + rows + ",per_layer=true",
                                 "snapkv+chunkkv" + rows + ",obs_window=8,chunk=5",
                                 "h2o+chunkkv+adakv" + rows + ",chunk=7,shared_chunks=true",
                                 "snapkv+criticalkv+adakv" + rows + ",obs_window=8",
                                 "keydiff+softmax+adakv" + rows,
                                 "knorm+rank+criticalkv+pyramid" + rows,
                                 "streaming" + rows + ",positions=contiguous",
                                 "keydiff+pyramid" + rows + ",positions=contiguous",
                                 "expected-attention" + rows + ",positions=contiguous",
                                 "h2o" + rows + ",positions=contiguous",
                                 "snapkv+adakv" + rows + ",obs_window=8,positions=contiguous",
                                 "knorm+merge" + rows,
                                 "snapkv+adakv+merge" + rows + ",obs_window=8",
                                 "h2o+cam" + rows,
                                 "snapkv+criticalkv+merge" + rows + ",obs_window=8",
                                 "keydiff+merge" + rows + ",positions=contiguous",
                                 "knorm+squeeze" + rows,
                                 "snapkv+squeeze+adakv" + rows + ",obs_window=8",
                                 "knorm+cake" + rows + ",cake_window=8",
                                 "keydiff+cake" + rows + ",cake_window=8,positions=contiguous",
                                 "leverage" + rows + ",positions=contiguous",
                                 "compactor+adakv" + rows + ",neighbours=9",
                                 "streaming+simlayer" + rows + ",lazy_threshold=0.2",
                                 "snapkv+chunkwise" + rows + ",obs_window=8,chunkwise=20",
                                 "keydiff+blockwise" + rows + ",block=10"};
  for (const policy::Method& method : policy::kMethods) {
    // Documents are replayed by sessions: tests/engine/replay_test.cpp.
    if (method.make != nullptr && !needs_of(method).replay.is_wanted()) {
      const std::string small = method.name == "lagkv"                         ? ",lag=8"
                                : method.name == "qfilters@keysvd"             ? ",calib_tokens=16"
                                : needs_of(method).chunk_attention.is_wanted() ? ",neighbours=12"
                                                                               : "";
      specs.push_back(std::string(method.name) + rows + small + own_options(method, shape));
    }
  }
  policy::Filters filters = random_filters(shape, 2);
  filters.frame = policy::FilterFrame::kPre;
  const std::string file = ",filters=" + write_filters(filters);
  specs.push_back("qfilters+adakv" + rows + file);
  specs.push_back("qfilters" + rows + file + ",positions=contiguous");
  return specs;
}

// Those of them that can cut a layer before the next one is read.
inline std::vector<std::string> policies_by_layer(int budget, const policy::FilterShape& shape) {
  std::vector<std::string> specs = all_policies(budget, shape);
  std::erase_if(specs, [](const std::string& spec) {
    return policy::Policy::parse(spec).needs_all_layers();
  });
  return specs;
}

}  // namespace winnow::test
