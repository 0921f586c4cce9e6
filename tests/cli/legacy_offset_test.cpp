// --legacy-offset and --kernels: published faults on demand, and the plainest kernels.

#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

Args decoded(const Args& more) {
  return joined({"-f", document(100), "-p", "Why?", "-n", "40", "--budget", "40"}, more);
}

TEST(LegacyOffset, IsShortForStalledPositions) {
  const json flag = tiny_json(decoded({"--policy", "knorm:n_recent=0", "--legacy-offset"}));
  const json spec = tiny_json(decoded({"--policy", "knorm:n_recent=0,positions=stalled"}));
  const json right = tiny_json(decoded({"--policy", "knorm:n_recent=0"}));
  EXPECT_EQ(flag["policy"], "knorm:budget=40,n_recent=0,positions=stalled");
  EXPECT_EQ(flag["answer"], spec["answer"]);
  EXPECT_EQ(flag["positions_fed"], right["positions_fed"]);
  EXPECT_NE(tiny_json(decoded({"--legacy-offset"}))["policy"].get<std::string>().find(
                "positions=stalled"),
            std::string::npos);
}

TEST(LegacyOffset, RefusesOtherPositionsAndIsNotSaved) {
  expect_refused(
      run_winnow(tiny_run(decoded({"--policy", "knorm:positions=contiguous", "--legacy-offset"}))),
      kInvalidArgument, {"has an option positions", "--legacy-offset"});
  expect_refused(
      run_winnow(tiny_run(decoded({"--policy", "knorm", "--legacy-offset", "--save-cache",
                                   temporary_path("stalled.cache"), "--json"}))),
      kInvalidArgument, {"stalled positions", "is not saved"});
}

TEST(KernelsFlag, ChangesNoResult) {
  for (const char* const policy : {"knorm", "snapkv:obs_window=8", "keydiff"}) {
    const Args args = decoded({"--policy", policy});
    json plain = tiny_json(joined(args, {"--kernels", "reference"}));
    json fast = tiny_json(joined(args, {"--kernels", "auto"}));
    for (const char* const same : {"answer", "kept_rows", "rows_evicted", "kv_bytes"}) {
      EXPECT_EQ(plain[same], fast[same]) << policy << ", " << same;
    }
  }
  expect_refused(run_winnow(tiny_run(decoded({"--kernels", "slow"}))), kInvalidArgument,
                 {"--kernels", "auto", "reference"});
}

}  // namespace
}  // namespace winnow::test
