// Models with layers of a sliding window: reported apart, planned rightly.

#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

using nlohmann::json;

// Layer 5 sees everything, the six others a window of 40.
const std::string& windowed_model() {
  static const std::string path =
      write_tiny_model({.architecture = "gemma3", .n_layers = 7, .head_dim = 32, .swa_window = 40});
  return path;
}

json run_windowed(const Args& args) {
  Args all{"run", "-m", windowed_model(), "-t", "1", "--json", "--temp", "0", "--ignore-eos"};
  all.insert(all.end(), args.begin(), args.end());
  return json_of(all);
}

TEST(WindowReport, SaysWhatWindowedLayersHold) {
  const json report = run_windowed(
      {"-f", document(200), "-p", "What?", "--policy", "knorm", "--budget", "64", "-n", "9"});
  const json& windowed = report["windowed_layers"];
  EXPECT_EQ(windowed["n"], 6);
  EXPECT_EQ(windowed["swa_window"], 40);
  EXPECT_GE(windowed["kept_rows"], 40);
  EXPECT_LT(windowed["kept_rows"], 50);  // a quarter of the window may wait
  const int64_t row_bytes = report["row_bytes"];
  EXPECT_EQ(windowed["bytes"], 6 * 2 * windowed["kept_rows"].get<int64_t>() * row_bytes);
  EXPECT_EQ(report["kept_rows"]["min"], 64);
  EXPECT_EQ(report["kept_rows"]["max"], 64);
  EXPECT_EQ(report["kv_bytes"]["now"], windowed["bytes"].get<int64_t>() + 2 * 64 * row_bytes);
  const int64_t fed = report["positions_fed"];
  EXPECT_EQ(report["rows_evicted"], 2 * (fed - 64));
  EXPECT_EQ(report["kv_bytes"]["full_cache"], 2 * (fed + 6 * 40) * row_bytes);
}

TEST(WindowReport, IsAbsentWithoutSuchLayers) {
  EXPECT_FALSE(tiny_json({"-p", "the word", "-n", "1"}).contains("windowed_layers"));
}

TEST(WindowReport, TheDryRunKnowsThem) {
  for (const Args& flags : {Args{}, {"--budget", "64"}, {"--budget", "10%", "-b", "32"}}) {
    Args args{"-f", document(300), "-p", "What?", "-n", "60"};
    args.insert(args.end(), flags.begin(), flags.end());
    const json report = run_windowed(args);
    args.push_back("--dry-run");
    const json plan = run_windowed(args);
    for (const char* field : {"peak", "full_cache"}) {
      const double actual = report["kv_bytes"][field];
      EXPECT_NEAR(plan["kv_bytes"][field].get<double>(), actual, 0.05 * actual) << field;
    }
    const double peak = report["peak_bytes"];
    EXPECT_NEAR(plan["peak_bytes"].get<double>(), peak, 0.05 * peak);
  }
}

}  // namespace
}  // namespace winnow::test
