#include "support/generate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/files.h"

namespace winnow::test {

engine::Sequence make_sequence(const model::Model& model, std::string_view policy, int max_rows,
                               cache::RowType type) {
  policy::Policy parsed = policy::Policy::parse(policy);
  const cache::CacheShape shape = engine::cache_shape(model.hyper(), type, type, parsed, max_rows);
  return {shape, std::move(parsed)};
}

std::vector<float> feed_all(engine::Engine& engine, engine::Sequence& sequence,
                            std::span<const int32_t> tokens, engine::PrefillOrder order) {
  const engine::Feed feed{
      .sequence = &sequence, .tokens = tokens, .logits = engine::WantedLogits::kAll};
  return std::move(engine.feed({&feed, 1}, {.order = order, .progress = {}})[0]);
}

std::vector<float> decode_all(engine::Engine& engine, engine::Sequence& sequence,
                              std::span<const int32_t> tokens) {
  std::vector<float> logits;
  for (const int32_t token : tokens) {
    const engine::DecodeInput input{.sequence = &sequence, .token = token};
    const std::vector<float> row = engine.decode({&input, 1});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

std::vector<int32_t> random_tokens(int n, int n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::generate(tokens.begin(), tokens.end(),
                [&] { return std::uniform_int_distribution<int32_t>(0, n_vocab - 1)(random); });
  return tokens;
}

std::vector<std::vector<int>> kept_positions(const cache::Cache& cache) {
  std::vector<std::vector<int>> kept;
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
      kept.push_back(cache.positions(layer, kv_head));
    }
  }
  return kept;
}

std::vector<int32_t> prose_tokens(const model::Model& model, int n) {
  const char* const long_text = "/usr/share/common-licenses/GPL-3";  // on every Debian machine
  const std::string own_text = std::string(WINNOW_SOURCE_DIR) + "/LICENSE";
  const std::string text =
      read_text_file(std::filesystem::exists(long_text) ? long_text : own_text);
  std::vector<int32_t> tokens = model.vocabulary().tokenize(text, model::SpecialText::kPlain);
  while (std::ssize(tokens) < n) {
    const std::vector<int32_t> again = tokens;
    tokens.insert(tokens.end(), again.begin(), again.end());
  }
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

double mean_kl(std::span<const float> a, std::span<const float> b, size_t n_vocab) {
  const auto log_softmax = [n_vocab](const float* logits) {
    const double highest = static_cast<double>(*std::max_element(logits, logits + n_vocab));
    double sum = 0;
    for (size_t i = 0; i < n_vocab; ++i) {
      sum += std::exp(static_cast<double>(logits[i]) - highest);
    }
    return highest + std::log(sum);
  };
  double total = 0;
  for (size_t row = 0; row < a.size() / n_vocab; ++row) {
    const float* const p = a.data() + row * n_vocab;
    const float* const q = b.data() + row * n_vocab;
    const double log_p = log_softmax(p);
    const double log_q = log_softmax(q);
    for (size_t i = 0; i < n_vocab; ++i) {
      const double lp = static_cast<double>(p[i]) - log_p;
      total += std::exp(lp) * (lp - (static_cast<double>(q[i]) - log_q));
    }
  }
  return total / static_cast<double>(a.size() / n_vocab);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace winnow::test
