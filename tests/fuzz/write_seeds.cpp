// Writes what the fuzz targets begin with: write_seeds FOLDER fills FOLDER/cache, FOLDER/gguf, FOLDER/npz,
// FOLDER/roles, FOLDER/spec, FOLDER/table and FOLDER/text.

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/npz.h"
#include "engine/session.h"
#include "policy/filters.h"
#include "policy/methods.h"
#include "policy/policy.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

std::vector<test::TinyModelOptions> models() {
  const auto smallest = [](const char* architecture) {
    return test::smallest_model(architecture, GGML_TYPE_Q4_0);
  };
  std::vector<test::TinyModelOptions> all{smallest("llama"), smallest("llama"), smallest("qwen2"),
                                          smallest("qwen3"), smallest("phi3"),  smallest("gemma3")};
  all[1].sentencepiece = true;
  all[1].rope_freqs = true;
  all[2].pre_tokenizer = "qwen2";
  all[2].tied = false;
  all[3].rope_scaling = "yarn";
  all[3].rope_scale = 4.0F;
  all[4].rope_scaling = "longrope";
  all[4].rope_attn_factor = 1.2F;
  all[4].n_ctx_orig = 64;
  all[4].context_factors = true;
  all[5].swa_window = 10;
  all[5].swa_pattern = 2;
  all[5].logit_softcap = 30.0F;
  return all;
}

std::vector<std::string> specs() {
  std::vector<std::string> all{"knorm:budget=10%", "streaming:budget=1.5MiB,preset=paper"};
  for (const policy::Method& method : policy::kMethods) {
    std::string spec(method.name);
    char separator = ':';
    for (const auto& options : {policy::describe_policy_options(), describe_options(method)}) {
      for (const policy::OptionDescription& option : options) {
        spec += separator + option.name + "=" +
                (option.default_value.empty() ? "512" : option.default_value);
        separator = ',';
      }
    }
    all.push_back(spec);
  }
  return all;
}

const std::vector<std::string> kTexts{"1,2,3", "0 49151\n7\t", "naïve \xe4\xb8\xad\xf0\x9f\x8c\x8d",
                                      "two  words\xc2\xa0here"};

// A byte for the format, a byte for the pieces, a text.
const std::vector<std::string> kStructured{
    "aa{\"a\": [1, \"b\"], c: 'd'} // e\n{\"f\": null}",
    "ba<?xml?><!DOCTYPE a><a b=\"c\"><!-- d --><![CDATA[e]]>f<br/></a> g",
    "caa,b\n1,\"2\"\"3\"\n",
    "daa: 1\nb:\n  - c: |\n      d\n    e: {f: [g]}\n---\n",
    "ea[a.b]\nc = \"d\"\ne = [1, {f = 2}]\ng = \"\"\"h\n\"\"\"\n",
    "fa2024-01-02 03:04:05 INFO a b=c \"d\" {\"e\": 1}\n",
    "ga# a\n\n| b |\n|---|\n| c |\n```json\n{\"d\": 1}\n```\n<|im_start|>user\ne<|im_end|>\nUser: "
    "f"};

// Of the smallest model, which cache_fuzz loads them with.
std::vector<std::string> caches() {
  const model::Model model(test::write_tiny_model(test::smallest_model("llama", GGML_TYPE_Q4_0)),
                           {});
  std::vector<std::string> files;
  for (const char* policy :
       {"full", "knorm:budget=10,n_sink=1,n_recent=2", "keydiff+adakv:budget=60%"}) {
    engine::Session session(model, policy::Policy::parse(policy),
                            {.order = {}, .engine = {.n_threads = 1, .n_batch = 16}});
    session.read({.document = std::vector<model::Token>(20, 3), .question = {4, 5}}, {});
    session.generate({.n_predict = 3, .ignore_eos = true, .sampling = {}}, {});
    const std::string path = test::temporary_path("seed.cache");
    session.save(path);
    files.push_back(read_text_file(path));
  }
  return files;
}

// Cases of two heads with three rows of two elements.
std::vector<std::string> cases() {
  const std::vector<float> elements{1, -2, 3, 0.5F, 0, 1, 2, 2, -1, 4, 1, 1};
  const std::vector<int32_t> positions{0, 1, 5};
  const double scale = 0.5;
  const auto bytes = [](const auto& all) { return std::as_bytes(std::span(all)); };
  const NpyArray rows{.type = "<f4", .shape = {2, 3, 2}, .bytes = bytes(elements)};
  const NpyArray of_a_layer{.type = "<f4", .shape = {1, 2, 3, 2}, .bytes = bytes(elements)};
  using Arrays = std::vector<std::pair<std::string, NpyArray>>;
  return {format_npz(Arrays{{"K", rows},
                            {"V", rows},
                            {"Q", rows},
                            {"positions", {"<i4", {3}, bytes(positions)}},
                            {"scale", {"<f8", {}, bytes(std::span(&scale, 1))}}}),
          format_npz(Arrays{{"K", of_a_layer}, {"Q", of_a_layer}}), format_npy(rows)};
}

// Of two layers with two heads of two elements.
std::vector<std::string> filters() {
  policy::Filters filters{.shape = {.n_layers = 2, .n_heads = 4, .n_kv_heads = 2, .head_dim = 2},
                          .directions = {1, 0, 0, 1, 0, -1, 0.6F, 0.8F},
                          .is_guarded = {false, true, false, false},
                          .text_hashes = {3, 9}};
  const std::vector<float> kappa(12, 1.0F);
  return {policy::format_filters(filters, {}),
          policy::format_filters(filters, {.arrays = {{"kv_kappa", {2, 2, 3}, kappa}}})};
}

void write(const std::filesystem::path& folder, const std::vector<std::string>& contents) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < contents.size(); ++i) {
    write_file_atomically((folder / ("seed-" + std::to_string(i))).string(), contents[i]);
  }
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::vector<std::string> files;
  for (const winnow::test::TinyModelOptions& options : winnow::models()) {
    files.push_back(winnow::read_text_file(winnow::test::write_tiny_model(options)));
  }
  winnow::write(folder / "cache", winnow::caches());
  winnow::write(folder / "filters", winnow::filters());
  winnow::write(folder / "gguf", files);
  winnow::write(folder / "npz", winnow::cases());
  winnow::write(folder / "roles", winnow::kStructured);
  winnow::write(folder / "spec", winnow::specs());
  winnow::write(folder / "table",
                {R"({"weights": [1, 2.5]})", R"({"comment": "x", "rows": [[1, 2], [3, 4]]})"});
  winnow::write(folder / "text", winnow::kTexts);
  return 0;
}
