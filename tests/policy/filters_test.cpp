// Files of filters: what is written is read again, and what is wrong with one is said.

#include "policy/filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/npz.h"
#include "support/error_of.h"
#include "support/filters.h"

namespace winnow::policy {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

const FilterShape kShape{.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .head_dim = 8};

Filters read(const std::string& content) {
  return parse_filters(std::as_bytes(std::span(content)), "f.npz");
}

TEST(Filters, AreReadAsTheyWereWritten) {
  Filters filters = test::random_filters(kShape);
  filters.frame = FilterFrame::kLegacy;
  filters.model = "llama";
  filters.fingerprint = "0123456789abcdef";
  filters.is_guarded[3] = true;
  filters.text_hashes = {1, 5, uint64_t{1} << 58};
  const std::vector<float> kappa{1, 2, 3, -1, 0, 1, 5, 6, 7, 2, 2, 2, 0, 1, 2, 4, 5, 6};
  const Filters again = read(format_filters(filters, {.arrays = {{"kv_kappa", {3, 2, 3}, kappa}}}));
  EXPECT_EQ(again.shape, kShape);
  EXPECT_EQ(again.frame, FilterFrame::kLegacy);
  EXPECT_EQ(again.directions, filters.directions);
  EXPECT_EQ(again.is_guarded, filters.is_guarded);
  EXPECT_EQ(again.fingerprint, filters.fingerprint);
  EXPECT_EQ(again.model, "llama");
  EXPECT_EQ(again.text_hashes, filters.text_hashes);
  EXPECT_EQ(again.kappa_low, (std::vector<float>{1, -1, 5, 2, 0, 4}));
  EXPECT_TRUE(again.is_normalized);
  EXPECT_TRUE(again.correlation.empty());
  EXPECT_FALSE(again.has_query_moments());
  const auto n = static_cast<size_t>(kShape.n_layers * kShape.n_heads * kShape.head_dim);
  filters.correlation.assign(filters.is_guarded.size(), 0.25F);
  filters.query_means.assign(n, 0.5F);
  filters.query_covariances.assign(n * static_cast<size_t>(kShape.head_dim), 2.0F);
  const Filters with = read(format_filters(filters, {}));
  EXPECT_EQ(with.correlation, filters.correlation);
  EXPECT_EQ(with.query_means, filters.query_means);
  EXPECT_EQ(with.query_covariances, filters.query_covariances);
  const auto refusal = [](const Filters& wrong) {
    return test::error_of(ErrorCode::kBadData, [&] { read(format_filters(wrong, {})); });
  };
  Filters wrong = filters;
  wrong.query_covariances.back() = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(wrong), HasSubstr("not finite"));
  wrong.query_covariances.clear();
  EXPECT_THAT(refusal(wrong), HasSubstr("has query_means and no query_covariances"));
  filters.is_normalized = false;
  for (float& each : filters.directions) {
    each /= 2;
  }
  EXPECT_FALSE(read(format_filters(filters, {})).is_normalized);
}

// The layout that anyone's numpy.load takes apart: __meta__ is a text of JSON, layer_i float32 [n_kv_heads, head_dim].
TEST(Filters, HaveThePublishedLayout) {
  const Filters filters = test::random_filters(kShape);
  const std::string content =
      format_filters(filters, {.model_id = "some model", .n_samples = 77, .dataset = "a b"});
  const NpzFile npz(std::as_bytes(std::span(content)), "f.npz");
  EXPECT_THAT(npz.names(), testing::ElementsAre("__meta__", "layer_0", "layer_1", "layer_2"));
  EXPECT_EQ(npz.find("layer_1")->type, "<f4");
  EXPECT_EQ(npz.find("layer_1")->shape, (std::vector<size_t>{2, 8}));
  const NpyArray& meta = *npz.find("__meta__");
  EXPECT_TRUE(meta.type.starts_with("<U"));
  EXPECT_TRUE(meta.shape.empty());
  std::string text;
  for (size_t at = 0; at < meta.bytes.size(); at += 4) {
    text += static_cast<char>(meta.bytes[at]);
  }
  const ordered_json json = ordered_json::parse(text);
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["model_id"], "some model");
  EXPECT_EQ(json["n_layers"], 3);
  EXPECT_EQ(json["n_samples"], 77);
  EXPECT_EQ(json["dataset"], "a b");
}

// A file whose parts can be changed before it is put together.
struct Parts {
  Parts() {
    const Filters filters = test::random_filters(kShape);
    for (size_t layer = 0; layer < 3; ++layer) {
      layers.emplace_back(
          filters.directions.begin() + static_cast<std::ptrdiff_t>(16 * layer),
          filters.directions.begin() + static_cast<std::ptrdiff_t>(16 * layer + 16));
    }
  }

  ordered_json meta = {{"version", 1}, {"frame", "post"}, {"n_layers", 3},
                       {"n_heads", 4}, {"n_kv_heads", 2}, {"head_dim", 8}};
  std::vector<std::vector<float>> layers;
  std::string type = "<f4";
  std::vector<size_t> shape{2, 8};
  bool has_meta = true;

  std::string file() const {
    const std::string ascii = meta.dump();
    const std::u32string text(ascii.begin(), ascii.end());
    std::vector<std::pair<std::string, NpyArray>> arrays;
    if (has_meta) {
      arrays.push_back({"__meta__",
                        {.type = "<U" + std::to_string(text.size()),
                         .shape = {},
                         .bytes = std::as_bytes(std::span(text))}});
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      arrays.push_back(
          {"layer_" + std::to_string(i),
           {.type = type, .shape = shape, .bytes = std::as_bytes(std::span(layers[i]))}});
    }
    return format_npz(arrays);
  }
  std::string refusal() const {
    try {
      read(file());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST(Filters, WhatIsWrongIsSaid) {
  EXPECT_EQ(Parts().refusal(), "");
  const auto with = [](const auto& change) {
    Parts parts;
    change(parts);
    return parts.refusal();
  };
  EXPECT_THAT(with([](Parts& p) { p.has_meta = false; }), HasSubstr("no filters"));
  EXPECT_THAT(with([](Parts& p) { p.meta = {1}; }), HasSubstr("no JSON object"));
  EXPECT_THAT(with([](Parts& p) { p.meta.erase("version"); }), HasSubstr("states no version"));
  EXPECT_THAT(with([](Parts& p) { p.meta["version"] = 2; }),
              HasSubstr("of version 2 (allowed: 1)"));
  EXPECT_THAT(with([](Parts& p) { p.meta.erase("frame"); }), HasSubstr("before or after rotation"));
  EXPECT_THAT(with([](Parts& p) { p.meta["frame"] = "mixed"; }),
              HasSubstr("unknown frame 'mixed'"));
  EXPECT_THAT(with([](Parts& p) { p.meta["n_kv_heads"] = 3; }), HasSubstr("do not divide"));
  EXPECT_THAT(with([](Parts& p) { p.meta["head_dim"] = -1; }), HasSubstr("states no head_dim"));
  EXPECT_THAT(with([](Parts& p) { p.meta["head_dim"] = 16; }),
              HasSubstr("layer_0 has shape [2, 8], and the file states [2, 16]"));
  EXPECT_THAT(with([](Parts& p) { p.layers.pop_back(); }), HasSubstr("has no layer_2"));
  EXPECT_THAT(with([](Parts& p) { p.layers.push_back(p.layers[0]); }), HasSubstr("more layers"));
  EXPECT_THAT(with([](Parts& p) { p.type = "<i4"; }), HasSubstr("allowed: float32"));
  EXPECT_THAT(with([](Parts& p) { p.shape = {16}; }), HasSubstr("layer_0 has shape [16]"));
  EXPECT_THAT(with([](Parts& p) { p.layers[1][3] = std::numeric_limits<float>::quiet_NaN(); }),
              HasSubstr("layer_1 has elements that are not finite"));
  EXPECT_THAT(with([](Parts& p) { p.layers[2].assign(16, 0.0F); }),
              HasSubstr("layer 2, KV head 0 has length 0.000000"));
  EXPECT_THAT(with([](Parts& p) { p.layers[2][9] = 3; }), HasSubstr("layer 2, KV head 1"));
  EXPECT_THAT(with([](Parts& p) { p.meta["guarded"] = {{0, 2}}; }), HasSubstr("[0,2]"));
}

TEST(Filters, CutOffFilesAreRefused) {
  const std::string content = Parts().file();
  for (size_t n = 0; n < content.size(); n += 37) {
    EXPECT_THROW(read(content.substr(0, n)), Error) << n;
  }
}

TEST(Filters, SharedStretchesTellTheSameTextApart) {
  std::vector<int32_t> text(4000);
  std::mt19937 random(3);
  for (int32_t& token : text) {
    token = static_cast<int32_t>(random() % 1000);
  }
  const std::vector<uint64_t> known = text_stretches(text);
  EXPECT_GT(known.size(), 60U);
  EXPECT_EQ(shared_stretches(text_stretches(std::span(text).subspan(1000, 2000)), known), 1);
  std::ranges::reverse(text);
  EXPECT_EQ(shared_stretches(text_stretches(text), known), 0);
  EXPECT_EQ(shared_stretches({}, known), 0);
}

}  // namespace
}  // namespace winnow::policy
