// The attention kernels alone, one thread: time for all layers of a model, bytes and flops against the machine.

#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "cache/cache.h"
#include "kernels/append.h"
#include "kernels/cache_ops.h"

namespace winnow {
namespace {

struct Shape {
  const char* name;
  int n_layers, n_heads, n_kv_heads, head_dim;
};

constexpr Shape kShapes[] = {
    {"SmolLM2-135M", 30, 9, 3, 64},
    {"Qwen2.5-0.5B", 24, 14, 2, 64},
    {"Qwen2.5-1.5B", 28, 12, 2, 128},
    {"Gemma3-270M", 18, 4, 1, 256},
};

std::vector<float> normal_floats(size_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (float& x : floats) {
    x = normal(random);
  }
  return floats;
}

// A cache of n rows in every head of every layer, so that layers take turns in the processor's caches as in a model.
cache::Cache filled_cache(const Shape& shape, int n_rows, cache::RowType type,
                          bool stores_mass = false) {
  cache::Cache cache({.n_layers = shape.n_layers,
                      .n_kv_heads = shape.n_kv_heads,
                      .head_dim = shape.head_dim,
                      .key_type = type,
                      .value_type = type,
                      .max_rows = n_rows + 1,
                      .stores_mass = stores_mass});
  const auto rows =
      normal_floats(static_cast<size_t>(n_rows) * static_cast<size_t>(shape.head_dim));
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      const kernels::NewRows news{.keys = rows.data(),
                                  .values = rows.data(),
                                  .stride = static_cast<size_t>(shape.head_dim),
                                  .n_rows = n_rows,
                                  .first_pos = 0};
      cache.commit(layer, head, n_rows,
                   kernels::append_rows(news, cache.shape(), cache.reserve(layer, head, n_rows)));
    }
  }
  return cache;
}

// Runs the attend node's work for `n_tokens` queries in every layer.
void run_attend(benchmark::State& state, bool is_prompt, int n_tokens, bool adds_mass = false) {
  const Shape& shape = kShapes[state.range(0)];
  const int n_rows = static_cast<int>(state.range(1));
  const auto type = static_cast<cache::RowType>(state.range(2));
  cache::Cache cache = filled_cache(shape, n_rows, type, adds_mass);
  const size_t token = static_cast<size_t>(shape.n_heads) * static_cast<size_t>(shape.head_dim);
  auto q = normal_floats(token * static_cast<size_t>(n_tokens));
  std::vector<float> out(q.size());
  ggml_tensor q_tensor{};
  q_tensor.data = q.data();
  ggml_tensor out_tensor{};
  out_tensor.data = out.data();
  out_tensor.ne[1] = n_tokens;
  out_tensor.nb[1] = token * sizeof(float);
  kernels::StepContext step({.n_heads = shape.n_heads,
                             .n_kv_heads = shape.n_kv_heads,
                             .head_dim = shape.head_dim,
                             .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))},
                            1);
  const kernels::Slice slice{.cache = &cache,
                             .first_token = 0,
                             .n_tokens = n_tokens,
                             .first_pos = is_prompt ? n_rows - n_tokens : n_rows,
                             .first_rotation = is_prompt ? n_rows - n_tokens : n_rows,
                             .is_prompt = is_prompt};
  step.set_slices({&slice, 1});
  for (auto _ : state) {
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      step.attend({.step = &step, .layer = layer}, &q_tensor, &out_tensor, 0, 1);
    }
    benchmark::DoNotOptimize(out.data());
  }
  const double rows = static_cast<double>(n_rows) * shape.n_layers;
  state.counters["GB/s"] =
      benchmark::Counter(rows * shape.n_kv_heads * shape.head_dim * 2 *
                             static_cast<double>(cache::element_bytes(type)) / 1e9,
                         benchmark::Counter::kIsIterationInvariantRate);
  // Two products of two flops an element; a prompt's own rows are seen by half of it.
  const double seen = is_prompt ? rows - shape.n_layers * n_tokens / 2.0 : rows;
  state.counters["GFLOP/s"] =
      benchmark::Counter(seen * n_tokens * shape.n_heads * shape.head_dim * 4 / 1e9,
                         benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(std::string(shape.name) + " " + cache::row_type_name(type));
}

void decode(benchmark::State& state) {
  run_attend(state, false, 1);
}
void prompt(benchmark::State& state) {
  run_attend(state, true, 128);
}
void decode_with_mass(benchmark::State& state) {
  run_attend(state, false, 1, true);
}
void prompt_with_mass(benchmark::State& state) {
  run_attend(state, true, 128, true);
}

// What reading the same rows costs, with nothing done to them: the floor of decoding.
void read_rows(benchmark::State& state) {
  const Shape& shape = kShapes[state.range(0)];
  const int n_rows = static_cast<int>(state.range(1));
  const cache::Cache cache = filled_cache(shape, n_rows, cache::RowType::kF16);
  const size_t n_words = static_cast<size_t>(n_rows) * static_cast<size_t>(shape.head_dim) / 4;
  uint64_t sum = 0;
  for (auto _ : state) {
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      for (int head = 0; head < shape.n_kv_heads; ++head) {
        const cache::HeadRows rows = cache.rows(layer, head);
        for (const std::byte* const start : {rows.keys, rows.values}) {
          const auto* const words = reinterpret_cast<const uint64_t*>(start);
          for (size_t i = 0; i < n_words; ++i) {
            sum += words[i];
          }
        }
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(n_words) * 16 * shape.n_layers * shape.n_kv_heads / 1e9,
      benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(shape.name);
}

BENCHMARK(read_rows)->ArgsProduct({{0, 2}, {512, 4096}})->Unit(benchmark::kMillisecond);
BENCHMARK(decode)->ArgsProduct({{0, 1, 2, 3}, {512, 4096}, {1}})->Unit(benchmark::kMillisecond);
BENCHMARK(decode)->ArgsProduct({{0, 2}, {4096}, {0, 2}})->Unit(benchmark::kMillisecond);
BENCHMARK(prompt)->ArgsProduct({{0, 1, 2, 3}, {512, 4096}, {1}})->Unit(benchmark::kMillisecond);

// Beside each other, so that their ratio is of one time.
BENCHMARK(decode)->ArgsProduct({{0, 2}, {16384, 32768}, {1}})->Unit(benchmark::kMillisecond);
BENCHMARK(decode_with_mass)
    ->ArgsProduct({{0, 2}, {512, 4096, 16384, 32768}, {1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(prompt)->ArgsProduct({{0, 2}, {16384, 32768}, {1}})->Unit(benchmark::kMillisecond);
BENCHMARK(prompt_with_mass)
    ->ArgsProduct({{0, 2}, {512, 4096, 16384, 32768}, {1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace winnow

BENCHMARK_MAIN();
