// winnow score: what policies make of keys, values and queries in a file.

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/files.h"
#include "base/npz.h"
#include "cli/winnow_program.h"
#include "policy/golden_fixture.h"
#include "policy/methods.h"

namespace winnow::test {
namespace {

namespace golden = policy::golden;

// An array that owns its elements.
struct Array {
  std::string type;
  std::vector<size_t> shape;
  std::string bytes;
};

template <typename T>
Array array(const std::string& type, std::vector<size_t> shape, const std::vector<T>& elements) {
  return {type, std::move(shape),
          std::string(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T))};
}

using Arrays = std::map<std::string, Array>;

std::string npz_of(const Arrays& arrays) {
  std::vector<std::pair<std::string, NpyArray>> views;
  for (const auto& [name, one] : arrays) {
    views.emplace_back(name, NpyArray{.type = one.type,
                                      .shape = one.shape,
                                      .bytes = std::as_bytes(std::span(one.bytes))});
  }
  return format_npz(views);
}

// The fixture's queries [n_heads, n_rows, head_dim].
std::vector<float> queries() {
  const std::vector<float> by_token = golden::queries();
  std::vector<float> by_head;
  for (int head = 0; head < golden::kHeads; ++head) {
    for (int row = 0; row < golden::kRows; ++row) {
      const auto begin = by_token.begin() + (row * golden::kHeads + head) * golden::kHeadDim;
      by_head.insert(by_head.end(), begin, begin + golden::kHeadDim);
    }
  }
  return by_head;
}

Arrays golden_case() {
  return {{"K", array("<f4", {2, 24, 8}, golden::keys())},
          {"V", array("<f4", {2, 24, 8}, golden::values())},
          {"Q", array("<f4", {4, 24, 8}, queries())}};
}

const std::string& output_path() {
  static const std::string path = temporary_path("scores.npz");
  return path;
}

Outcome score(const std::string& file, const Args& specs, const Args& more = {}) {
  Args args{"score", "-i", write_text("case.npz", file), "-o", output_path(), "-t", "1"};
  for (const std::string& spec : specs) {
    args = joined(args, {"--policy", spec});
  }
  return run_winnow(joined(args, more));
}

// What was written for one policy.
struct Result {
  std::vector<float> scores;
  std::vector<std::vector<int>> kept;  // [n_heads of all layers] rows
  std::vector<int64_t> n_kept;
  std::vector<size_t> shape;  // of the scores
};

Result result_of(const Arrays& arrays, const std::string& spec) {
  const Outcome outcome = score(npz_of(arrays), {spec});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string file = read_text_file(output_path());
  const NpzFile npz(std::as_bytes(std::span(file)), output_path());
  EXPECT_EQ(npz.names(),
            (std::vector<std::string>{"final_scores", "kept", "n_kept", "policy", "scores"}));
  Result result{.scores = npy_floats(*npz.find("scores"), "scores"),
                .kept = {},
                .n_kept = npy_integers(*npz.find("n_kept"), "n_kept"),
                .shape = npz.find("scores")->shape};
  const NpyArray& mask = *npz.find("kept");
  EXPECT_EQ(mask.shape, result.shape);
  EXPECT_EQ(mask.type, "|b1");
  const size_t n_rows = mask.shape.back();
  for (size_t i = 0; i < mask.bytes.size(); ++i) {
    if (i % n_rows == 0) {
      result.kept.emplace_back();
    }
    if (mask.bytes[i] != std::byte{0}) {
      result.kept.back().push_back(static_cast<int>(i % n_rows));
    }
  }
  for (size_t head = 0; head < result.kept.size(); ++head) {
    EXPECT_EQ(result.n_kept[head], std::ssize(result.kept[head]));
  }
  return result;
}

double sum(const std::vector<float>& scores) {
  return std::accumulate(scores.begin(), scores.end(), 0.0);
}

TEST(Score, KeepsOfTheGoldenFixtureWhatThePolicyKeeps) {
  for (const char* spec :
       {"knorm:budget=12,n_sink=0,n_recent=0", "keydiff:budget=12,n_sink=0,n_recent=0",
        "lagkv:budget=12,n_sink=2,n_recent=0,lag=4", "streaming:budget=12,n_sink=4,n_recent=0",
        "random:budget=12,n_sink=1", "tova:budget=12,n_sink=0,n_recent=1,per_layer=true",
        "snapkv+adakv:budget=12,n_sink=0,n_recent=0,obs_window=4,kernel=5,pool=avg",
        "h2o:budget=12,n_sink=0,n_recent=0,observed=true", "h2o:budget=12,n_sink=0,n_recent=6"}) {
    EXPECT_EQ(result_of(golden_case(), spec).kept, golden::kept_by(spec)) << spec;
  }
}

TEST(Score, TurnsQueriesBackByTheirFrequencies) {
  std::vector<float> frequencies;
  for (int i = 0; i < golden::kHeadDim / 2; ++i) {
    frequencies.push_back(std::pow(10000.0F, -2.0F * static_cast<float>(i) / golden::kHeadDim));
  }
  Arrays arrays = golden_case();
  const std::string spec = "expected-attention+adakv:budget=12,n_recent=0,epsilon=0.01";
  expect_refused(score(npz_of(arrays), {spec}), kInvalidArgument, {"there are no frequencies"});
  arrays["frequencies"] = array("<f4", {4}, frequencies);
  EXPECT_EQ(result_of(arrays, spec).kept, golden::kept_by(spec));
  arrays["frequencies"] = array("<f4", {5}, std::vector<float>(5, 1.0F));
  expect_refused(score(npz_of(arrays), {spec}), kBadData,
                 {"frequencies has shape [5]", "[1] to [4]"});
  arrays["frequencies"] = array("<f4", {2}, std::vector<float>{1, 0});
  expect_refused(score(npz_of(arrays), {spec}), kBadData, {"frequencies has 0", "above 0"});
}

// None is given less than it reads: what the file cannot give is refused.
TEST(Score, EveryMethodScoresOrSaysWhatItNeeds) {
  for (const policy::Method& method : policy::kMethods) {
    if (method.make == nullptr) {
      continue;
    }
    const Outcome outcome = score(npz_of(golden_case()), {std::string(method.name) + ":budget=12"});
    EXPECT_EQ(outcome.signal, 0) << method.name;
    if (outcome.status != 0) {
      expect_refused(outcome, kInvalidArgument, {std::string(method.name), "needs"});
    }
  }
}

// kvpress's own numbers.
TEST(Score, ScoresOfTheGoldenFixtureAreKvpresss) {
  const auto scores = [](const std::string& spec) { return result_of(golden_case(), spec).scores; };
  const std::vector<float> keydiff = scores("keydiff:budget=12,n_sink=0,n_recent=0");
  EXPECT_NEAR(sum(keydiff), -8.542783, 1e-5);
  EXPECT_NEAR(keydiff[5], -0.866069, 1e-6);
  EXPECT_NEAR(keydiff[24 + 7], -0.250227, 1e-6);
  double norms = 0;  // knorm compares squares
  for (const float score : scores("knorm:budget=12,n_sink=0,n_recent=0")) {
    norms -= std::sqrt(static_cast<double>(-score));
  }
  EXPECT_NEAR(norms, -75.505032, 1e-5);
  const std::vector<float> snapkv =
      scores("snapkv:budget=12,n_sink=0,n_recent=0,obs_window=4,kernel=5,pool=avg");
  EXPECT_NEAR(snapkv[5], 0.043465, 1e-6);
  EXPECT_NEAR(snapkv[24 + 7], 0.042154, 1e-6);
}

TEST(Score, LayersAndPoliciesAreAxesInFront) {
  const auto twice = [](const std::vector<float>& once) {
    std::vector<float> both = once;
    both.insert(both.end(), once.begin(), once.end());
    return both;
  };
  const Arrays layers{{"K", array("<f4", {2, 2, 24, 8}, twice(golden::keys()))},
                      {"Q", array("<f4", {2, 4, 24, 8}, twice(queries()))}};
  const std::string spec = "snapkv:budget=12,n_sink=0,n_recent=0,obs_window=4";
  const Result both = result_of(layers, spec);
  EXPECT_EQ(both.shape, (std::vector<size_t>{2, 2, 24}));
  const Result one = result_of(golden_case(), spec);
  EXPECT_EQ(both.scores, twice(one.scores));
  EXPECT_EQ(both.kept[2], one.kept[0]);
  const Result pyramid = result_of(layers, "knorm+pyramid:budget=12,n_sink=0,n_recent=0,beta=3");
  EXPECT_GT(pyramid.n_kept[0], 12);
  EXPECT_EQ(std::accumulate(pyramid.n_kept.begin(), pyramid.n_kept.end(), 0), 4 * 12);

  EXPECT_EQ(score(npz_of(golden_case()), {"knorm:budget=5,n_sink=0", spec}).status, 0);
  const std::string file = read_text_file(output_path());
  const NpzFile npz(std::as_bytes(std::span(file)), output_path());
  EXPECT_EQ(npz.find("scores")->shape, (std::vector<size_t>{2, 2, 24}));
  EXPECT_EQ(npz.find("n_kept")->shape, (std::vector<size_t>{2, 2}));
  EXPECT_EQ(npz.find("policy")->shape, std::vector<size_t>{2});
  EXPECT_EQ(npy_integers(*npz.find("n_kept"), "n_kept"), (std::vector<int64_t>{5, 5, 12, 12}));
}

TEST(Score, DividesRowsOverTheirRoles) {
  Arrays arrays = golden_case();
  std::vector<int32_t> roles(24);
  for (size_t row = 0; row < roles.size(); ++row) {
    roles[row] = static_cast<int32_t>(row % 6);
  }
  arrays["roles"] = array("<i4", {24}, roles);
  const Result result =
      result_of(arrays, "knorm+roles:budget=8,n_sink=0,n_recent=0,roles=value-delim,ban=ws");
  for (const std::vector<int>& rows : result.kept) {
    ASSERT_EQ(rows.size(), 8);
    for (const int row : rows) {
      EXPECT_TRUE(row % 6 == 2 || row % 6 == 3) << row;  // DELIM and VALUE have four rows each
    }
  }
  arrays.erase("roles");
  EXPECT_NE(score(npz_of(arrays), {"knorm+roles:budget=8"}).err.find("needs roles"),
            std::string::npos);
  arrays["roles"] = array("<i4", {23}, std::vector<int32_t>(23));
  EXPECT_NE(score(npz_of(arrays), {"knorm+roles:budget=8"}).err.find("but K has 24 rows"),
            std::string::npos);
  roles[5] = 6;
  arrays["roles"] = array("<i4", {24}, roles);
  EXPECT_NE(score(npz_of(arrays), {"knorm+roles:budget=8"}).err.find("roles has 6 (allowed: 0 WS"),
            std::string::npos);
}

TEST(Score, TakesDoublesAndHalves) {
  Arrays doubles;
  for (const auto& [name, given] : golden_case()) {
    std::vector<double> wide(given.bytes.size() / sizeof(float));
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i] = static_cast<double>(reinterpret_cast<const float*>(given.bytes.data())[i]);
    }
    doubles[name] = array("<f8", given.shape, wide);
  }
  doubles["scale"] = array("<f8", {}, std::vector<double>{1 / std::sqrt(8.0)});
  const std::string spec = "h2o:budget=12,n_sink=0,n_recent=0";
  EXPECT_EQ(result_of(doubles, spec).scores, result_of(golden_case(), spec).scores);

  // 1, 2 and 3 as halves: squared norms of rows of 2 elements.
  const Arrays halves{
      {"K", array("<f2", {1, 3, 2}, std::vector<uint16_t>{0x3c00, 0, 0x4000, 0, 0x4200, 0x3c00})}};
  EXPECT_EQ(result_of(halves, "knorm:budget=1,n_sink=0,n_recent=0").scores,
            (std::vector<float>{-1, -4, -10}));
}

TEST(Score, PositionsMayHaveGaps) {
  Arrays given = golden_case();
  std::vector<int64_t> positions(24);
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i] = 10 + 3 * static_cast<int64_t>(i);
  }
  given["positions"] = array("<i8", {24}, positions);
  // No row is at a sink's position; and who attends to whom is the same.
  EXPECT_EQ(result_of(given, "streaming:budget=12,n_sink=4,n_recent=0").kept[0][0], 12);
  EXPECT_EQ(result_of(given, "h2o:budget=12").scores,
            result_of(golden_case(), "h2o:budget=12").scores);
  expect_refused(score(npz_of(given), {"snapkv:budget=12,obs_window=4"}), kInvalidArgument,
                 {"needs the last 4 queries", "gaps"});
}

TEST(Score, ABudgetForAllRowsKeepsAllOfThem) {
  const Result result = result_of(golden_case(), "keydiff:budget=24");
  EXPECT_EQ(result.n_kept, (std::vector<int64_t>{24, 24}));
  EXPECT_NEAR(sum(result.scores), -8.542783, 1e-5);
  EXPECT_EQ(result_of(golden_case(), "keydiff:budget=50%,n_sink=0").n_kept[0], 12);
}

TEST(Score, NansInWhatAMethodDoesNotReadChangeNothing) {
  Arrays given = golden_case();
  const std::vector<float> nans(size_t{2} * 24 * 8, std::nanf(""));
  given["V"] = array("<f4", {2, 24, 8}, nans);
  for (const char* spec : {"knorm:budget=12", "keydiff:budget=12", "h2o:budget=12",
                           "snapkv:budget=12,obs_window=4", "tova:budget=12"}) {
    EXPECT_EQ(result_of(given, spec).scores, result_of(golden_case(), spec).scores) << spec;
  }
  given["K"] = given["V"];
  const Outcome outcome = score(npz_of(given), {"knorm:budget=12"}, {"--json"});
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["policies"][0]["nan_scores"], 48);
}

TEST(Score, TheSummaryHasTheDocumentedFields) {
  const Outcome outcome =
      score(npz_of(golden_case()), {"knorm+adakv:budget=12", "tova"}, {"--to", "10", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["input"], temporary_path("case.npz"));
  EXPECT_EQ(json["output"], output_path());
  EXPECT_EQ(json["n_layers"], 1);
  EXPECT_EQ(json["n_heads"], 4);
  EXPECT_EQ(json["n_kv_heads"], 2);
  EXPECT_EQ(json["n_rows"], 24);
  EXPECT_EQ(json["head_dim"], 8);
  ASSERT_EQ(json["policies"].size(), 2U);
  EXPECT_EQ(json["policies"][0]["policy"], "knorm+adakv:budget=12");
  EXPECT_EQ(json["policies"][1]["budget_rows"], 10);
  EXPECT_EQ(json["policies"][1]["kept_rows"], (nlohmann::json{{"min", 10}, {"max", 10}}));
  EXPECT_EQ(json["policies"][1]["rows_evicted"], 28);
  EXPECT_EQ(json["policies"][1]["nan_scores"], 0);
}

TEST(Score, WhatAPolicyNeedsAndTheFileHasNotIsRefusedByName) {
  Arrays keys = golden_case();
  keys.erase("V");
  keys.erase("Q");
  EXPECT_EQ(score(npz_of(keys), {"knorm:budget=12", "keydiff:budget=12"}).status, 0);
  expect_refused(score(npz_of(keys), {"lagkv:budget=12"}), kInvalidArgument,
                 {"lagkv", "needs values", "no V"});
  expect_refused(score(npz_of(keys), {"snapkv:budget=12"}), kInvalidArgument,
                 {"snapkv", "needs the last 24 queries", "no Q"});
  expect_refused(score(npz_of(keys), {"h2o:budget=12"}), kInvalidArgument,
                 {"h2o", "needs column mass", "no Q"});
  Arrays few = golden_case();
  few["Q"] = array("<f4", {4, 5, 8}, std::vector<float>(size_t{4} * 5 * 8, 1.0F));
  EXPECT_EQ(score(npz_of(few), {"snapkv:budget=12,obs_window=5"}).status, 0);
  expect_refused(score(npz_of(few), {"snapkv:budget=12,obs_window=6"}), kInvalidArgument,
                 {"needs the last 6 queries", "Q has 5"});
  expect_refused(score(npz_of(few), {"h2o:budget=12"}), kInvalidArgument, {"all 24 rows"});
}

TEST(Score, ContradictionsAreNamedAllAtOnce) {
  Arrays given = golden_case();
  given["V"].shape = {2, 8, 24};
  given["Q"].shape = {3, 32, 8};
  given["positions"] = array("<i4", {3}, std::vector<int32_t>{1, 2, 3});
  given["scale"] = array("<f4", {2}, std::vector<float>{1, 1});
  expect_refused(score(npz_of(given), {"knorm:budget=12"}), kBadData,
                 {"V has shape [2, 8, 24] and K [2, 24, 8]", "3 query heads",
                  "positions has shape [3]", "scale has shape [2]"});
  given = golden_case();
  given["K"].shape = {48, 8};
  given["keys"] = given["K"];
  expect_refused(score(npz_of(given), {"knorm:budget=12"}), kBadData,
                 {"K has shape [48, 8]", "unknown array 'keys'", "allowed: K, V, Q"});
  given = golden_case();
  std::vector<int32_t> positions(24, 7);
  given["positions"] = array("<i4", {24}, positions);
  expect_refused(score(npz_of(given), {"knorm:budget=12"}), kBadData, {"positions[1] is 7"});
  given["positions"] = array("<i8", {24}, std::vector<int64_t>(24, -1));
  expect_refused(score(npz_of(given), {"knorm:budget=12"}), kBadData, {"positions[0] is -1"});
  given["positions"] = array("<f4", {24}, std::vector<float>(24));
  expect_refused(score(npz_of(given), {"knorm:budget=12"}), kUnsupported, {"positions", "<f4"});
  given["positions"] = array("<i4", {24}, positions);
  given.erase("K");
  expect_refused(score(npz_of(given), {"knorm:budget=12"}), kBadData, {"there is no K"});
  given = golden_case();
  given["scale"] = array("<f4", {}, std::vector<float>{-1});
  expect_refused(score(npz_of(given), {"knorm:budget=12"}), kBadData, {"scale is -1"});
}

TEST(Score, DamagedFilesAreRefused) {
  const std::string file = npz_of(golden_case());
  for (const size_t n : {size_t{1}, file.size() / 2, file.size() - 1}) {
    expect_refused(score(file.substr(0, n), {"knorm:budget=12"}), kBadData, {"case.npz"});
  }
  std::string changed = file;
  changed[500] = static_cast<char>(changed[500] ^ 1);
  expect_refused(score(changed, {"knorm:budget=12"}), kBadData, {"case.npz: K"});
  expect_refused(score("no archive at all", {"knorm:budget=12"}), kBadData, {"not a whole .npz"});
}

TEST(Score, WritesToThePathAsItWasGiven) {
  const std::string path = temporary_path("scores-without-suffix");
  const Outcome outcome = run_winnow({"score", "-i", write_text("case.npz", npz_of(golden_case())),
                                      "-o", path, "--policy", "knorm:budget=12"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".npz"));
}

TEST(Score, CallsItCannotCarryOutAreRefused) {
  const std::string file = npz_of(golden_case());
  expect_refused(score(file, {"full"}), kInvalidArgument, {"full", "keeps every row"});
  expect_refused(score(file, {"knorm"}), kInvalidArgument, {"needs a budget"});
  expect_refused(score(file, {"knrom:budget=12"}), kInvalidArgument, {"knorm"});
  expect_refused(score(file, {}), kInvalidArgument, {"--policy"});
  expect_refused(run_winnow({"score", "-i", temporary_path("missing.npz"), "-o", output_path(),
                             "--policy", "knorm:budget=12"}),
                 kNotFound, {"missing.npz"});
  expect_refused(
      run_winnow({"score", "-i", write_text("case.npz", file), "-o",
                  temporary_path("no-folder") + "/out.npz", "--policy", "knorm:budget=12"}),
      kIo, {"out.npz"});
}

// Its input would be lost.
TEST(Score, TheOutputIsNotTheInput) {
  const std::string content = npz_of(golden_case());
  const std::string path = write_text("case.npz", content);
  expect_refused(run_winnow({"score", "-i", path, "-o", path, "--policy", "knorm:budget=12"}),
                 kInvalidArgument, {"case.npz", "would be lost"});
  EXPECT_EQ(read_text_file(path), content);
}

// With transforms, what selection ranks is written too, and the best of it are kept.
TEST(Score, WritesFinalScoresToo) {
  const auto floats_of = [](const std::string& spec, const char* name) {
    EXPECT_EQ(score(npz_of(golden_case()), {spec}).status, 0);
    const std::string file = read_text_file(output_path());
    const NpzFile npz(std::as_bytes(std::span(file)), output_path());
    return npy_floats(*npz.find(name), name);
  };
  const std::string plain = "knorm:budget=12,n_sink=0,n_recent=0";
  EXPECT_EQ(floats_of(plain, "final_scores"), floats_of(plain, "scores"));
  const std::string ranked = "knorm+rank:budget=12,n_sink=0,n_recent=0";
  EXPECT_EQ(floats_of(ranked, "scores"), floats_of(plain, "scores"));
  std::vector<float> final_scores = floats_of(ranked, "final_scores");
  const auto kept = result_of(golden_case(), ranked).kept;
  for (const int row : kept[0]) {
    EXPECT_GT(final_scores[static_cast<size_t>(row)], 0.5F);
  }
  std::sort(final_scores.begin(), final_scores.begin() + 24);
  for (int i = 0; i < 24; ++i) {
    EXPECT_FLOAT_EQ(final_scores[static_cast<size_t>(i)], static_cast<float>(i + 1) / 24);
  }
  const std::string chunks = "knorm+chunkkv:budget=12,n_sink=0,n_recent=0,chunk=4";
  EXPECT_NE(floats_of(chunks, "final_scores"), floats_of(chunks, "scores"));
  const std::string all = "knorm+rank:budget=24,n_sink=0,n_recent=0";
  EXPECT_EQ(floats_of(all, "final_scores"), floats_of(all, "scores"));
}

TEST(Score, TakesIntegers) {
  std::vector<int32_t> keys(2 * 24 * 8);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<int32_t>(i % 7) - 3;
  }
  const Arrays arrays{{"K", array("<i4", {2, 24, 8}, keys)}};
  EXPECT_EQ(result_of(arrays, "knorm:budget=12").n_kept, (std::vector<int64_t>{12, 12}));
}

}  // namespace
}  // namespace winnow::test
