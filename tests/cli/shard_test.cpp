// An evaluation in parts that run at the same time, put together.

#include <gtest/gtest.h>

#include "base/files.h"
#include "program_in_path.h"
#include "winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

// Without what differs from run to run.
json groups_of(json summary) {
  for (json& group : summary["groups"]) {
    for (const char* const key : {"prefill_ms", "compress_ms", "answer_ms"}) {
      group.erase(key);
    }
  }
  return summary["groups"];
}

TEST(Shards, OfMpiProcessesAreTheWholeOnceMerged) {
  const std::string mpirun = program_in_path({"mpirun"});
  if (mpirun.empty()) {
    GTEST_SKIP() << "no mpirun in PATH (Debian: openmpi-bin)";
  }
  const Args eval{"eval", "niah", "-m",       tiny_model(), "-t",        "1",   "--lengths", "600",
                  "-n",   "5",    "--policy", "knorm",      "--budgets", "10%", "-q"};
  const std::string part = temporary_path("mpi_part");
  // As docs/evaluation.md has it.
  const std::string shell =
      "\"$@\" --shard $((OMPI_COMM_WORLD_RANK + 1))/$OMPI_COMM_WORLD_SIZE -o " + part +
      "$OMPI_COMM_WORLD_RANK";
  const Outcome parts = Program(mpirun,
                                joined({"--allow-run-as-root", "--oversubscribe", "-np", "2", "sh",
                                        "-c", shell, "sh", WINNOW_PROGRAM},
                                       eval),
                                {})
                            .wait();
  ASSERT_EQ(parts.status, 0) << parts.err;
  const std::string merged = temporary_path("mpi_merged");
  ASSERT_EQ(run_winnow({"eval", "merge", part + "0", part + "1", "-o", merged}).status, 0);
  const std::string whole = temporary_path("mpi_whole");
  ASSERT_EQ(run_winnow(joined(eval, {"-o", whole})).status, 0);
  const auto summary_in = [](const std::string& folder) {
    return json::parse(read_text_file(folder + "/summary.json"));
  };
  EXPECT_EQ(summary_in(whole)["groups"].size(), 2);
  EXPECT_EQ(groups_of(summary_in(merged)), groups_of(summary_in(whole)));
}

}  // namespace
}  // namespace winnow::test
