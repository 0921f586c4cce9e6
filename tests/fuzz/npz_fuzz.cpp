// A file of arrays of any content: reading a case from it ends in an Error, or in rows that policies score. The same bytes
// as an array, and as every array of a case, since few changed archives get past their checksums.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/npz.h"
#include "cli/case_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using namespace winnow;

void score(std::span<const std::byte> file) {
  static const policy::Policy policies[] = {
      policy::Policy::parse("knorm:budget=2,n_sink=0,n_recent=0"),
      policy::Policy::parse("h2o:budget=2,n_sink=0,n_recent=0")};
  try {
    const cli::CaseFile given = cli::parse_case(file, "case.npz");
    for (const policy::Policy& policy : policies) {
      const engine::CaseResult result = engine::score_case(given.content, policy, 1);
      if (result.kept.size() != result.scores.size()) {
        std::abort();
      }
    }
  } catch (const Error&) {
  }
}

void use_as_every_array(std::span<const std::byte> file) {
  std::vector<std::pair<std::string, NpyArray>> arrays;
  try {
    const NpyArray array = parse_npy(file, "array");
    arrays = {{"K", array}, {"V", array}, {"Q", array}};
  } catch (const Error&) {
    return;
  }
  const std::string archive = format_npz(arrays);
  score(std::as_bytes(std::span(archive)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  score(bytes);
  use_as_every_array(bytes);
  return 0;
}
