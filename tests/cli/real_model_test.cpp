// A few runs of a real model: an answer that can be read, and the same numbers as with the tiny one.

#include "cli/winnow_program.h"
#include "support/models.h"

namespace winnow::test {
namespace {

using nlohmann::json;

const char* const kText =
    "The library opens at nine. The password of the archive is 4711. The garden has old trees. "
    "The kitchen is closed on Mondays, and the cook is away until spring.";

TEST(RealModel, AnswersAndStops) {
  WINNOW_FIND_MODEL(path, kSmolLm2);
  const Args args{
      "run", "-m", path,     "-t", "1", "-f", "-", "-p", "What is the password of the archive?",
      "-n",  "32", "--temp", "0"};
  const Outcome text = run_winnow(args, kText);
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("4711"), std::string::npos) << text.out;
  const json report = json_of(joined(args, {"--json"}), kText);
  EXPECT_EQ(report["answer"].get<std::string>() + "\n", text.out);
  EXPECT_EQ(report["stop"], "end-of-text");
}

TEST(RealModel, PlanHolds) {
  WINNOW_FIND_MODEL(path, kSmolLm2);
  const Args args{"run", "-m", path,       "-t", "1",      "-f", "-",      "-p",          "Why?",
                  "-n",  "4",  "--budget", "20", "--temp", "0",  "--json", "--ignore-eos"};
  const json plan = json_of(joined(args, {"--dry-run"}), kText);
  const json report = json_of(args, kText);
  EXPECT_EQ(report["kept_rows"]["min"], 20);
  EXPECT_EQ(report["kept_rows"]["max"], 20);
  for (const char* key : {"residual_bytes", "compute_bytes", "peak_bytes"}) {
    EXPECT_NEAR(plan[key].get<double>(), report[key].get<double>(),
                0.05 * report[key].get<double>())
        << key;
  }
}

}  // namespace
}  // namespace winnow::test
