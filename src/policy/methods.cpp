#include "policy/methods.h"

#include <iterator>

#include "base/error.h"
#include "base/nearest_name.h"

namespace winnow::policy {

const Method& find_method(std::string_view name) {
  const auto method = std::ranges::find(kMethods, name, &Method::name);
  if (method != std::end(kMethods)) {
    return *method;
  }
  std::vector<std::string_view> names;
  std::ranges::transform(kMethods, std::back_inserter(names), &Method::name);
  throw Error(ErrorCode::kInvalidArgument, unknown_name("method", name, names));
}

std::vector<OptionDescription> describe_options(const Method& method) {
  OptionReader reader;
  if (method.make != nullptr) {
    method.make(reader);
  }
  return reader.descriptions();
}

std::vector<std::string> describe(const Needs& needs) {
  std::vector<std::string> list;
  const auto add = [&list](bool is_needed, std::string what) {
    if (is_needed) {
      list.push_back(std::move(what));
    }
  };
  add(needs.keys, "keys");
  add(needs.values, "values");
  add(needs.key_norms, "key norms");
  add(needs.key_projections, "key projections");
  add(needs.notes, "notes");
  add(needs.column_mass, "column mass");
  add(needs.query_moments, "query moments");
  add(needs.residual_similarity, "residual similarity");
  add(needs.n_queries > 0, "last " + std::to_string(needs.n_queries) + " queries");
  add(needs.output_weights, "output weights");
  add(needs.unturned_keys, "rotation of keys");
  add(needs.key_sample.n_keys > 0, "first " + std::to_string(needs.key_sample.n_keys) + " keys");
  add(needs.roles, "roles");
  add(needs.replay.is_wanted(), "replay in parts of " + std::to_string(needs.replay.chunk));
  add(needs.chunk_attention.is_wanted(),
      "attention in chunks of " + std::to_string(needs.chunk_attention.length));
  return list;
}

Needs needs_of(const Method& method) {
  OptionReader reader;
  return method.make == nullptr ? Needs{} : method.make(reader)->needs();
}

std::vector<std::string> describe_needs(const Method& method) {
  return describe(needs_of(method));
}

}  // namespace winnow::policy
