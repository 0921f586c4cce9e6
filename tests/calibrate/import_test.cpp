// Filters of others: turned round, in the order of the model's file, or refused.

#include "calibrate/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/npz.h"
#include "support/filters.h"
#include "support/random_rows.h"
#include "support/tiny_model.h"

namespace winnow::calibrate {
namespace {

using model::Model;
using policy::FilterFrame;
using policy::Filters;
using testing::HasSubstr;

std::string safetensors(const std::string& header, std::span<const std::byte> data) {
  std::string file(8, '\0');
  const uint64_t n = header.size();
  std::memcpy(file.data(), &n, sizeof(n));
  file += header;
  file.append(reinterpret_cast<const char*>(data.data()), data.size());
  return file;
}

// [2, 2, 16] float32, as the authors publish.
std::string published(const std::vector<float>& values) {
  return safetensors(
      R"({"__metadata__":{"format":"pt"},"q_filters":{"dtype":"F32","shape":[2,2,16],"data_offsets":[0,256]}})",
      std::as_bytes(std::span(values)));
}

Filters import(const std::string& file, const Model& model, FilterFrame frame = FilterFrame::kPre) {
  return import_filters(std::as_bytes(std::span(file)), "f", model, frame);
}

std::vector<float> random_directions() {
  return test::random_filters({.n_layers = 2, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16})
      .directions;
}

// Halves: as the file has it. Neighbours: pairs (i, i + 8) become (2 i, 2 i + 1).
TEST(Import, TurnsPublishedFiltersRoundAndIntoTheModelsOrder) {
  const std::vector<float> values = random_directions();
  const Model halves(test::write_tiny_model({.architecture = "qwen2"}), {});
  const Model neighbours(test::write_tiny_model(), {});
  const Filters as_is = import(published(values), halves);
  const Filters permuted = import(published(values), neighbours);
  EXPECT_EQ(as_is.frame, FilterFrame::kPost);
  EXPECT_EQ(as_is.fingerprint, halves.fingerprint());
  for (size_t head = 0; head < 4; ++head) {
    for (size_t i = 0; i < 8; ++i) {
      const size_t at = head * 16;
      EXPECT_NEAR(as_is.directions[at + i], -values[at + i], 1e-6);
      EXPECT_NEAR(permuted.directions[at + 2 * i], -values[at + i], 1e-6);
      EXPECT_NEAR(permuted.directions[at + 2 * i + 1], -values[at + i + 8], 1e-6);
    }
  }
  // What is written is read again, with lengths below 1.
  std::vector<float> shorter = values;
  for (float& each : shorter) {
    each *= 0.7F;
  }
  const std::string file = policy::format_filters(import(published(shorter), halves), {});
  const Filters again = policy::parse_filters(std::as_bytes(std::span(file)), "f");
  EXPECT_NEAR(again.directions[5], -0.7F * values[5], 1e-6);
}

// Turning the pairs of either order by the same angles keeps the product of filter and key.
TEST(Import, BothOrdersAreTheSameVectorToARotation) {
  std::mt19937 random(1);
  const std::vector<float> filter = test::random_floats(random, 16);
  const std::vector<float> key = test::random_floats(random, 16);
  const auto rotated = [](std::vector<float> x, kernels::Rotation::Pairs layout) {
    const kernels::Rotation rotation{
        .layout = layout, .step = 0.3F, .pairs = std::vector<kernels::Rotation::Pair>(8)};
    std::vector<float> turns(16);
    kernels::turns_at(rotation, 7, turns);
    kernels::turn(rotation, turns, x);
    return x;
  };
  const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  std::vector<float> filter_of_neighbours = filter;
  std::vector<float> key_of_neighbours = key;
  to_neighbours(filter_of_neighbours, 16);
  to_neighbours(key_of_neighbours, 16);
  EXPECT_NEAR(
      dot(filter, rotated(key, kernels::Rotation::Pairs::kHalves)),
      dot(filter_of_neighbours, rotated(key_of_neighbours, kernels::Rotation::Pairs::kNeighbours)),
      1e-5);
}

TEST(Import, TakesLayersThatDoNotSayTheirFrame) {
  const std::vector<float> values = random_directions();
  std::vector<std::pair<std::string, NpyArray>> arrays;
  for (size_t layer = 0; layer < 2; ++layer) {
    arrays.push_back({"layer_" + std::to_string(layer),
                      {.type = "<f4",
                       .shape = {2, 16},
                       .bytes = std::as_bytes(std::span(values).subspan(32 * layer, 32))}});
  }
  const Model model(test::write_tiny_model({.architecture = "qwen2"}), {});
  const Filters filters = import(format_npz(arrays), model, FilterFrame::kLegacy);
  EXPECT_EQ(filters.frame, FilterFrame::kLegacy);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(filters.directions[i], values[i], 1e-6);
  }
}

// Those of the authors are from after rotation, and say nothing about the mismatch.
TEST(Import, OneArrayHasNoLegacyFrame) {
  const Model model(test::write_tiny_model(), {});
  EXPECT_THROW(import(published(random_directions()), model, FilterFrame::kLegacy), Error);
}

TEST(Import, SaysWhatIsWrong) {
  const Model model(test::write_tiny_model(), {});
  const Model wider(test::write_tiny_model({.n_heads = 8, .n_kv_heads = 4}), {});
  const std::vector<float> values = random_directions();
  const auto refusal = [](const std::string& file, const Model& on) -> std::string {
    try {
      import(file, on);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(published(values), model), "");
  EXPECT_THAT(refusal(published(values), wider), HasSubstr("filters of shape [2, 2, 16]"));
  std::vector<float> longer = values;
  longer[3] = 4;
  EXPECT_THAT(refusal(published(longer), model), HasSubstr("layer 0, KV head 0 has length"));
  longer[3] = std::nanf("");
  EXPECT_THAT(refusal(published(longer), model), HasSubstr("not finite"));
  EXPECT_THAT(refusal(published({values.begin(), values.begin() + 9}), model),
              HasSubstr("beyond the end"));
  EXPECT_THAT(refusal(safetensors("{}", {}), model), HasSubstr("0 tensors"));
  EXPECT_THAT(refusal(safetensors(R"({"a":[1]})", {}), model), HasSubstr("does not describe"));
  EXPECT_THAT(
      refusal(safetensors(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,0]}})", {}), model),
      HasSubstr("allowed: F32, F16, BF16"));
  EXPECT_THAT(refusal("abc", model), HasSubstr("cut off"));
  EXPECT_THAT(refusal("PK\3\4", model), HasSubstr("not a whole .npz file"));
  const std::string whole = published(values);
  for (size_t n = 0; n < whole.size(); n += 11) {
    EXPECT_NE(refusal(whole.substr(0, n), model), "") << n;
  }
}

}  // namespace
}  // namespace winnow::calibrate
