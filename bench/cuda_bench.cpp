// The GPU's kernels beside what the GPU can do at best: a copy of memory in the same run. Prints a Markdown table: median,
// minimum and maximum of each measurement, bytes that must be moved by the time it took, and the share of the copy's rate.
//
// usage: cuda_bench [part of the names of what is to be measured]
//
// Every measurement is a graph, launched again and again; what it reads is several times the L2 cache, unless said otherwise.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda_ceilings.h"
#include "kernels/attend.h"
#include "kernels/cuda/attend_decode.h"
#include "kernels/cuda/attend_prompt.h"
#include "kernels/cuda/column_mass.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_rows.h"

namespace winnow::bench {
namespace {

using namespace kernels::cuda;  // NOLINT(google-build-using-namespace)

std::string wanted;  // part of the names of what is measured; empty: all

struct Time {
  double median, least, most;  // µs
};

// `before_each` is run each time, outside the graph and not timed.
Time measure(
    const Stream& stream, const std::function<void()>& record,
    const std::function<void()>& before_each = [] {}) {
  constexpr int kWarm = 3;
  constexpr int kTimed = 30;
  const Graph graph(stream, record);
  for (int i = 0; i < kWarm; ++i) {
    before_each();
    graph.launch(stream);
  }
  stream.wait();
  std::vector<double> times;
  Event before;
  Event after;
  for (int i = 0; i < kTimed; ++i) {
    before_each();
    before.record(stream);
    graph.launch(stream);
    after.record(stream);
    times.push_back(after.us_since(before));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

double copy_rate = 0;  // bytes read and written a µs

bool is_wanted(const std::string& name) {
  return name.find(wanted) != std::string::npos;
}

// `parts`: how many equal pieces (layers, evictions) time and bytes are divided by.
void report(
    const std::string& name, const Stream& stream, const std::function<void()>& record,
    double bytes, int parts, const char* target, const std::function<void()>& before_each = [] {}) {
  if (!is_wanted(name)) {
    return;
  }
  const Time time = measure(stream, record, before_each);
  std::printf("| %s | %.2f (%.2f–%.2f) | %.1f | %.2f | %.0f %% | %s |\n", name.c_str(),
              time.median / parts, time.least / parts, time.most / parts, bytes / parts / 1e6,
              bytes / time.median / 1e6, 100 * bytes / time.median / copy_rate, target);
  std::fflush(stdout);
}

// n rows a head of n_heads heads, of random bits that are numbers in f16.
class Rows {
 public:
  Rows(int n_heads, int n_rows, int head_dim)
      : n_heads_(n_heads),
        n_rows_(n_rows),
        format_{head_dim, cache::RowType::kF16, cache::RowType::kF16},
        keys_(elements()),
        values_(elements()),
        positions_(static_cast<size_t>(n_heads) * static_cast<size_t>(n_rows)),
        scores_(positions_.size()),
        heads_(static_cast<size_t>(n_heads)) {
    fill(keys_, 1);
    fill(values_, 2);
    std::vector<int32_t> positions(static_cast<size_t>(n_rows));
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<HeadArrays> heads;
    for (int i = 0; i < n_heads; ++i) {
      const size_t row = static_cast<size_t>(i) * static_cast<size_t>(n_rows);
      copy_to_device(positions_.data() + row, positions.data(), positions.size() * sizeof(int32_t));
      heads.push_back(
          {.keys = reinterpret_cast<std::byte*>(keys_.data() + row * static_cast<size_t>(head_dim)),
           .values =
               reinterpret_cast<std::byte*>(values_.data() + row * static_cast<size_t>(head_dim)),
           .positions = positions_.data() + row,
           .scores = scores_.data() + row,
           .n = n_rows});
    }
    heads_.set(heads);
    host_heads_ = heads;
  }

  const RowFormat& format() const { return format_; }
  Heads some(int first, int n) const { return {heads_.data() + first, n, n_rows_}; }
  Heads all() const { return some(0, n_heads_); }
  const std::vector<HeadArrays>& host_heads() const { return host_heads_; }
  const Array<HeadArrays>& heads() const { return heads_; }
  double key_bytes() const { return static_cast<double>(keys_.size()) * 2; }

  // Remembers all that compaction moves, and puts it back.
  void keep_copy() {
    copies_.clear();
    for (const auto& [data, bytes] : moved()) {
      copies_.emplace_back(bytes);
      copy_from_to(copies_.back().data(), data, bytes);
    }
  }
  void restore(const Stream& stream) const {
    const auto all = moved();
    for (size_t i = 0; i < all.size(); ++i) {
      copy(all[i].first, copies_[i].data(), all[i].second, stream);
    }
  }

  void set_scores(const std::function<float(std::mt19937&)>& draw) {
    std::mt19937 random(5);
    std::vector<float> scores(1 << 20);
    for (float& x : scores) {
      x = draw(random);
    }
    for (size_t at = 0; at < scores_.size(); at += scores.size()) {
      const size_t n = std::min(scores.size(), scores_.size() - at);
      copy_to_device(scores_.data() + at, scores.data(), n * sizeof(float));
    }
  }

 private:
  std::vector<std::pair<std::byte*, size_t>> moved() const {
    const auto bytes_of = [](const auto& array) {
      return std::pair(reinterpret_cast<std::byte*>(array.data()),
                       array.size() * sizeof(*array.data()));
    };
    return {bytes_of(keys_), bytes_of(values_), bytes_of(positions_), bytes_of(scores_)};
  }
  static void copy_from_to(std::byte* to, const std::byte* from, size_t bytes) {
    const Stream stream;
    copy(to, from, bytes, stream);
    stream.wait();
  }
  size_t elements() const {
    return static_cast<size_t>(n_heads_) * static_cast<size_t>(n_rows_) *
           static_cast<size_t>(format_.head_dim);
  }
  static void fill(const Array<uint16_t>& array, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<uint16_t> bits(size_t{1} << 22);
    for (uint16_t& x : bits) {
      const auto drawn = static_cast<uint32_t>(random());
      x = static_cast<uint16_t>((drawn & 0x83ff) | (12 + (drawn >> 16) % 5) << 10);  // 1/8 … 4
    }
    for (size_t at = 0; at < array.size(); at += bits.size()) {
      const size_t n = std::min(bits.size(), array.size() - at);
      copy_to_device(array.data() + at, bits.data(), n * sizeof(uint16_t));
    }
  }

  int n_heads_, n_rows_;
  RowFormat format_;
  Array<uint16_t> keys_, values_;
  Array<int32_t> positions_;
  Array<float> scores_;
  Array<HeadArrays> heads_;
  std::vector<HeadArrays> host_heads_;
  std::vector<Buffer> copies_;
};

Array<Quota> quotas_of(int n_heads, Quota quota) {
  const std::vector<Quota> quotas(static_cast<size_t>(n_heads), quota);
  return Array<Quota>(std::span<const Quota>(quotas));
}

float draw_normal(std::mt19937& random) {
  return std::normal_distribution<float>()(random);
}

constexpr int kLayers = 32;
constexpr int kHeads = 8;
constexpr int kDim = 128;

void measure_ceilings(const Stream& stream) {
  constexpr size_t kBytes = size_t{2} << 30;
  const Array<uint32_t> from(kBytes / sizeof(uint32_t));
  const Buffer to(kBytes);
  std::mt19937 random(1);
  std::vector<uint32_t> bits(size_t{1} << 22);
  std::generate(bits.begin(), bits.end(), random);
  for (size_t at = 0; at < from.size(); at += bits.size()) {
    copy_to_device(from.data() + at, bits.data(), bits.size() * sizeof(uint32_t));
  }
  const auto copy_all = [&] { copy(to.data(), from.data(), kBytes, stream); };
  copy_rate = 2.0 * kBytes / measure(stream, copy_all).median;
  report("copy of 2 GiB: the ceiling", stream, copy_all, 2.0 * kBytes, 1, "");
  report(
      "copy of 2 GiB by the driver", stream,
      [&] { copy_on_device(to.data(), from.data(), kBytes, stream); }, 2.0 * kBytes, 1, "");
  report(
      "plain reading of 2 GiB", stream,
      [&] { read(reinterpret_cast<unsigned*>(to.data()), from.data(), kBytes, stream); }, kBytes, 1,
      "");
  report(
      "a kernel that does nothing, in a graph", stream,
      [&] {
        for (int i = 0; i < 100; ++i) {
          do_nothing(stream);
        }
      },
      0, 100, "");
}

void measure_scores(const Stream& stream, const Rows& rows) {
  const Array<float> filters([] {
    std::vector<float> floats(static_cast<size_t>(kLayers * kHeads * kDim));
    std::mt19937 random(3);
    std::generate(floats.begin(), floats.end(), [&] { return draw_normal(random); });
    return floats;
  }());
  report(
      "score: norms, 256 heads x 32k, one launch", stream,
      [&] { score_norms(rows.format(), rows.all(), -1.0F, stream); }, rows.key_bytes(), 1, "90 %");
  report(
      "score: dots, 256 heads x 32k, one launch", stream,
      [&] { score_dots(rows.format(), rows.all(), filters.data(), stream); }, rows.key_bytes(), 1,
      "90 %");
  report(
      "score: dots, a layer of 8 heads x 32k (67 MB)", stream,
      [&] {
        for (int layer = 0; layer < kLayers; ++layer) {
          score_dots(rows.format(), rows.some(layer * kHeads, kHeads), filters.data(), stream);
        }
      },
      rows.key_bytes(), kLayers, "90 %");
}

void measure_select(const Stream& stream, Rows& rows, int n_rows) {
  constexpr int kKeep = 2048;
  const int n_heads = kLayers * kHeads;
  const Array<Quota> quotas = quotas_of(n_heads, {kKeep, 4, 64});
  const Array<int32_t> slots(static_cast<size_t>(n_heads) * kKeep);
  const Slots to{slots.data(), kKeep};
  const auto of_layer = [&](int layer) {
    return Slots{slots.data() + static_cast<size_t>(layer) * kHeads * kKeep, kKeep};
  };
  const struct {
    const char* name;
    std::function<float(std::mt19937&)> draw;
  } kinds[] = {{"normal", draw_normal},
               {"128 values", [](auto& random) { return static_cast<float>(random() % 128); }},
               {"all equal", [](auto& /*random*/) { return 1.0F; }}};
  for (const auto& kind : kinds) {
    rows.set_scores(kind.draw);
    const std::string shape = " x " + std::to_string(n_rows) + ", " + kind.name;
    report(
        "select: 256 heads" + shape, stream,
        [&] { select(rows.all(), quotas.data(), to, nullptr, stream); }, 4.0 * n_heads * n_rows, 1,
        n_rows == 32768 ? "50 µs" : "");
    if (n_rows == 32768) {
      report(
          "select: 8 heads" + shape + " (scores in L2)", stream,
          [&] {
            for (int layer = 0; layer < kLayers; ++layer) {
              select(rows.some(layer * kHeads, kHeads), quotas.data(), of_layer(layer), nullptr,
                     stream);
            }
          },
          4.0 * n_heads * n_rows, kLayers, "12 µs");
    }
  }
  rows.set_scores(draw_normal);
}

void measure_eviction(const Stream& stream, Rows& rows, int n_keep) {
  const int n_heads = kLayers * kHeads;
  const Array<Quota> quotas = quotas_of(n_heads, {n_keep, 4, 64});
  const Array<int32_t> slots(static_cast<size_t>(n_heads) * static_cast<size_t>(n_keep));
  const auto stride = static_cast<size_t>(n_keep);
  const Slots to{slots.data(), stride};
  const double moved = 4.0 * n_heads * n_keep * 256;
  const double scores = 4.0 * n_heads * 32768;
  const std::string name = "32k → " + std::to_string(n_keep);
  const char* const select_target = n_keep == 2048 ? "200 µs" : "";
  // What has been cut once would be cut more cheaply.
  const auto restore = [&] { rows.restore(stream); };
  const auto slots_of = [&](int layer) {
    return Slots{slots.data() + static_cast<size_t>(layer) * kHeads * stride, stride};
  };
  const auto of_layer = [&](int layer) { return rows.some(layer * kHeads, kHeads); };
  restore();
  select(rows.all(), quotas.data(), to, nullptr, stream);
  stream.wait();
  report(
      "compact: 256 heads, " + name, stream,
      [&] { compact(rows.format(), rows.all(), quotas.data(), to, stream); }, moved, 1, "80 %",
      restore);
  report(
      "compact: a layer of 8 heads, " + name, stream,
      [&] {
        for (int layer = 0; layer < kLayers; ++layer) {
          compact(rows.format(), of_layer(layer), quotas.data(), slots_of(layer), stream);
        }
      },
      moved, kLayers, "", restore);
  report(
      "select + compact: 256 heads, " + name, stream,
      [&] {
        select(rows.all(), quotas.data(), to, nullptr, stream);
        compact(rows.format(), rows.all(), quotas.data(), to, stream);
      },
      moved + scores, 1, select_target, restore);
  report(
      "select + compact in one kernel: 256 heads, " + name, stream,
      [&] { select_and_compact(rows.format(), rows.all(), quotas.data(), to, nullptr, stream); },
      moved + scores, 1, select_target, restore);
  report(
      "select + compact in one kernel: a layer of 8 heads, " + name, stream,
      [&] {
        for (int layer = 0; layer < kLayers; ++layer) {
          select_and_compact(rows.format(), of_layer(layer), quotas.data(), slots_of(layer),
                             nullptr, stream);
        }
      },
      moved + scores, kLayers, "", restore);
  report(
      "score + select + compact: 256 heads, " + name, stream,
      [&] {
        score_norms(rows.format(), rows.all(), -1.0F, stream);
        select(rows.all(), quotas.data(), to, nullptr, stream);
        compact(rows.format(), rows.all(), quotas.data(), to, stream);
      },
      rows.key_bytes() + moved, 1, n_keep == 2048 ? "780 µs" : "", restore);
}

// 4096 tokens of one layer in chunks of 16 into a budget of 512: what evicting costs. Each eviction is of rows whose last are
// new; writing their scores is a node of its own, whose time is measured alone as well.
void measure_chunks(const Stream& stream) {
  constexpr int kBudget = 512;
  constexpr int kTokens = 4096;
  for (const int slack : {16, 512}) {
    const std::string name = "4096 tokens, budget 512, evicted every " + std::to_string(slack);
    Rows rows(kHeads, kBudget + slack, kDim);
    rows.set_scores(draw_normal);
    rows.keep_copy();
    const Array<Quota> quotas = quotas_of(kHeads, {kBudget, 4, 64});
    const Array<int32_t> slots(static_cast<size_t>(kHeads * kBudget));
    const int n_evictions = (kTokens - kBudget) / slack;
    std::vector<float> news(static_cast<size_t>(n_evictions * kHeads * slack));
    std::mt19937 random(6);
    std::generate(news.begin(), news.end(), [&] { return draw_normal(random); });
    const Array<float> device_news{std::span<const float>(news)};
    const auto append = [&](int i) {
      write_rows(rows.host_heads()[0].scores + kBudget, kBudget + slack,
                 device_news.data() + static_cast<ptrdiff_t>(i) * kHeads * slack, kHeads, slack,
                 stream);
    };
    const auto restore = [&] { rows.restore(stream); };
    const double bytes = n_evictions * 4.0 * kHeads * kBudget * 256;
    report(
        name + ", in all", stream,
        [&] {
          for (int i = 0; i < n_evictions; ++i) {
            append(i);
            select_and_compact(rows.format(), rows.all(), quotas.data(),
                               {slots.data(), static_cast<size_t>(kBudget)}, nullptr, stream);
          }
        },
        bytes, 1, slack == 16 ? "2000 µs" : "100 µs", restore);
    report(
        name + ": of that, writing new scores", stream,
        [&] {
          for (int i = 0; i < n_evictions; ++i) {
            append(i);
          }
        },
        0, 1, "");
  }
}

struct DecodeCase {
  const char* name;
  int head_dim, n_kv_heads, group;
  int n_positions;           // the query is at the last
  std::vector<int> lengths;  // [n_kv_heads]; rows at random positions where less than n_positions
  const char* target;
};

void measure_decode(const Stream& stream, const DecodeCase& c) {
  const std::string name = std::string("decode: ") + c.name;
  if (!is_wanted(name)) {
    return;
  }
  const auto longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  const double layer_rows = std::accumulate(c.lengths.begin(), c.lengths.end(), 0.0);
  const double layer_bytes = layer_rows * c.head_dim * 4;
  const int n_layers = std::clamp(static_cast<int>(400e6 / layer_bytes), 4, 64);
  const Rows rows(n_layers * c.n_kv_heads, longest, c.head_dim);
  const int n_heads = n_layers * c.n_kv_heads;
  const size_t n_q = static_cast<size_t>(c.group) * static_cast<size_t>(c.head_dim);
  std::vector<float> q(static_cast<size_t>(n_heads) * n_q);
  std::mt19937 random(9);
  std::generate(q.begin(), q.end(), [&] { return draw_normal(random); });
  const Array<float> device_q{std::span<const float>(q)};
  const Array<float> out(q.size());
  std::vector<DecodeHead> heads;
  std::vector<int32_t> all(static_cast<size_t>(c.n_positions));
  std::iota(all.begin(), all.end(), 0);
  for (int i = 0; i < n_heads; ++i) {
    const HeadArrays& head = rows.host_heads()[static_cast<size_t>(i)];
    const int n = c.lengths[static_cast<size_t>(i % c.n_kv_heads)];
    if (n < c.n_positions) {
      std::vector<int32_t> kept;
      std::sample(all.begin(), all.end(), std::back_inserter(kept), n, random);
      copy_to_device(head.positions, kept.data(), kept.size() * sizeof(int32_t));
    }
    heads.push_back({.keys = head.keys,
                     .values = head.values,
                     .positions = head.positions,
                     .hidden = nullptr,
                     .slots = nullptr,
                     .q = device_q.data() + static_cast<size_t>(i) * n_q,
                     .out = out.data() + static_cast<size_t>(i) * n_q,
                     .n = n,
                     .pos = c.n_positions - 1,
                     .swa_window = 0,
                     .has_nonfinite_values = false});
  }
  const Array<DecodeHead> device_heads{std::span<const DecodeHead>(heads)};
  DecodePlan plan({.format = rows.format(),
                   .gqa_group_size = c.group,
                   .n_kv_heads = c.n_kv_heads,
                   .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim))},
                  n_heads, c.n_kv_heads, longest);
  const auto attend = [&] {
    plan.prepare(device_heads.data(), n_heads, longest, stream);
    for (int layer = 0; layer < n_layers; ++layer) {
      plan.attend(layer * c.n_kv_heads, c.n_kv_heads, stream);
    }
  };
  report(name, stream, attend, layer_bytes * n_layers, n_layers, c.target);
}

std::vector<int> equal(int n_heads, int n) {
  return std::vector<int>(static_cast<size_t>(n_heads), n);
}

// From a quarter of n to all of it.
std::vector<int> ragged(int n_heads, int n) {
  std::vector<int> lengths;
  for (int i = 0; i < n_heads; ++i) {
    lengths.push_back(n / 4 + (n - n / 4) * i / (n_heads - 1));
  }
  return lengths;
}

std::vector<int> mean_of(const std::vector<int>& lengths) {
  const int total = std::accumulate(lengths.begin(), lengths.end(), 0);
  return equal(static_cast<int>(lengths.size()), total / static_cast<int>(lengths.size()));
}

void measure_decodes(const Stream& stream) {
  const std::vector<DecodeCase> cases = {
      {"128 x 8, group 4, 512 rows", 128, 8, 4, 512, equal(8, 512), "5.4 µs (6)"},
      {"128 x 8, group 4, 2048 rows", 128, 8, 4, 2048, equal(8, 2048), "9.4 µs"},
      {"128 x 8, group 4, 4096 rows", 128, 8, 4, 4096, equal(8, 4096), "12.5 µs"},
      {"128 x 8, group 4, 32768 rows", 128, 8, 4, 32768, equal(8, 32768), "62 µs, 85 %"},
      {"128 x 8, group 4, 512 of 32768 rows", 128, 8, 4, 32768, equal(8, 512), "6 µs"},
      {"128 x 8, group 4, 2048 of 32768 rows", 128, 8, 4, 32768, equal(8, 2048), ""},
      {"128 x 8, group 4, 8192 … 32768 of 32768 rows", 128, 8, 4, 32768, ragged(8, 32768),
       "1.05 x the next"},
      {"128 x 8, group 4, 20480 of 32768 rows", 128, 8, 4, 32768, mean_of(ragged(8, 32768)), ""},
      {"128 x 8, group 4, one of 8 heads 16 times longer",
       128,
       8,
       4,
       32768,
       {32768, 2048, 2048, 2048, 2048, 2048, 2048, 2048},
       "1.05 x the next"},
      {"128 x 8, group 4, 5888 of 32768 rows", 128, 8, 4, 32768, equal(8, 5888), ""},
      {"128 x 8, group 8, 32768 rows", 128, 8, 8, 32768, equal(8, 32768), ""},
      {"128 x 2, group 6, 512 rows", 128, 2, 6, 512, equal(2, 512), "4.1 µs"},
      {"128 x 2, group 6, 4096 rows", 128, 2, 6, 4096, equal(2, 4096), "7.0 µs"},
      {"128 x 2, group 6, 32768 rows", 128, 2, 6, 32768, equal(2, 32768), "22.9 µs"},
      {"64 x 2, group 7, 512 rows", 64, 2, 7, 512, equal(2, 512), "3.9 µs"},
      {"64 x 2, group 7, 4096 rows", 64, 2, 7, 4096, equal(2, 4096), "6.3 µs"},
      {"64 x 2, group 7, 32768 rows", 64, 2, 7, 32768, equal(2, 32768), "18.3 µs"},
      {"64 x 3, group 3, 4096 rows", 64, 3, 3, 4096, equal(3, 4096), "6.9 µs"},
      {"256 x 1, group 4, 4096 rows", 256, 1, 4, 4096, equal(1, 4096), ""},
      {"128 x 8, group 4, 131072 rows", 128, 8, 4, 131072, equal(8, 131072), "85 %"},
  };
  for (const DecodeCase& c : cases) {
    measure_decode(stream, c);
  }
}

// What a layer's rows receive of queries: `n_tokens` of the last ones, of each query head by itself (a window), or those of a chunk
// of a prompt, of all query heads of a group together (column mass). Flops: one product of each query and key for each pass.
void measure_statistics(const Stream& stream, const Rows& rows, int n_rows, int group) {
  const struct {
    const char* name;
    int n_tokens;
    bool is_window;
  } cases[] = {{"window pass: 64 queries", 64, true},
               {"window pass: 1 query", 1, true},
               {"column mass: a chunk of 512 tokens", 512, false},
               {"column mass: one token", 1, false}};
  const DecodeShape shape{
      .format = rows.format(), .gqa_group_size = group, .n_kv_heads = kHeads, .scale = 0.09F};
  const size_t n_heads = static_cast<size_t>(kHeads) * static_cast<size_t>(group);
  std::vector<float> floats(512 * n_heads * kDim);
  std::mt19937 random(5);
  std::generate(floats.begin(), floats.end(), [&] { return draw_normal(random); });
  const Array<float> queries{std::span<const float>(floats)};
  const Array<float> out(floats.size());
  const Array<unsigned long long> n_nonfinite(1);
  fill_bytes(n_nonfinite.data(), 0, sizeof(unsigned long long), stream);
  for (const auto& c : cases) {
    const auto n_tokens = static_cast<size_t>(c.n_tokens);
    const int n_parts = c.is_window ? (n_rows - 1) / kernels::kSumsPart + 1 : 1;
    const Array<WeightSum> sums(n_heads * n_tokens * static_cast<size_t>(n_parts));
    const Array<long long> mass(n_heads * static_cast<size_t>(n_rows));
    std::vector<PromptHead> prompts;
    std::vector<MassHead> masses;
    const size_t per_item = c.is_window ? 1 : static_cast<size_t>(group);  // query heads
    for (size_t head = 0; head < n_heads; head += per_item) {
      const HeadArrays& of_head = rows.host_heads()[head / static_cast<size_t>(group)];
      WeightSum* const of_sums = sums.data() + head * n_tokens * static_cast<size_t>(n_parts);
      prompts.push_back({.keys = of_head.keys,
                         .values = of_head.values,
                         .positions = of_head.positions,
                         .hidden = nullptr,
                         .n_nonfinite_values = n_nonfinite.data(),
                         .q = queries.data() + head * kDim,
                         .out = out.data() + head * kDim,
                         .n = n_rows,
                         .n_tokens = c.n_tokens,
                         .first_pos = n_rows - c.n_tokens,
                         .swa_window = 0,
                         .sums = of_sums,
                         .n_ring = 0});
      if (head % static_cast<size_t>(group) != 0) {
        continue;
      }
      masses.push_back({.keys = of_head.keys,
                        .positions = of_head.positions,
                        .hidden = nullptr,
                        .q = queries.data() + head * kDim,
                        .sums = of_sums,
                        .mass = mass.data() + head * static_cast<size_t>(n_rows),
                        .n = n_rows,
                        .n_tokens = c.n_tokens,
                        .first_pos = n_rows - c.n_tokens,
                        .n_ring = 0,
                        .decay = 0.0F});
    }
    const Array<PromptHead> prompt_heads{std::span<const PromptHead>(prompts)};
    const Array<MassHead> mass_heads{std::span<const MassHead>(masses)};
    const auto n = static_cast<int>(prompts.size());
    const Array<std::byte> images(
        kernels::cuda::mass_image_bytes(shape, kHeads, c.n_tokens, c.is_window));
    const kernels::cuda::MassLaunch launch{.heads = mass_heads.data(),
                                           .n = kHeads,
                                           .most_tokens = c.n_tokens,
                                           .most_rows = n_rows,
                                           .images = images.data()};
    const auto add = [&] {
      if (c.is_window) {
        sum_window(shape, launch, n_tokens * static_cast<size_t>(n_parts),
                   static_cast<size_t>(n_rows), stream);
      } else {
        add_mass(shape, launch, stream);
      }
    };
    const auto sum_up = [&] {
      if (c.is_window) {
        sum_weights(shape, prompt_heads.data(), n, c.n_tokens, n_parts, stream);
      } else {
        attend_prompt(shape, prompt_heads.data(), n, c.n_tokens, stream);
      }
    };
    const std::string name = std::string(c.name) + ", 8 heads of 128 x " + std::to_string(n_rows) +
                             ", group " + std::to_string(group);
    const double key_bytes = 2.0 * kHeads * kDim * n_rows;
    const double gflop = 2.0 * static_cast<double>(n_heads * n_tokens) * kDim * n_rows / 1e9;
    const std::string flops = std::to_string(static_cast<int>(gflop)) + " GFLOP";
    report(name + (c.is_window ? ", sums" : ", attention"), stream, sum_up, key_bytes, 1,
           flops.c_str());
    report(name + ", mass", stream, add, key_bytes, 1, flops.c_str());
  }
}

int run() {
  check_available();
  const Stream stream;
  std::printf(
      "| path | µs: median (minimum–maximum) | MB | TB/s | of the copy | target |\n"
      "|---|---:|---:|---:|---:|---|\n");
  measure_ceilings(stream);
  if (wanted.empty() || !wanted.starts_with("decode")) {
    Rows rows(kLayers * kHeads, 32768, kDim);
    measure_scores(stream, rows);
    {
      const Rows small(kLayers * kHeads, 4096, kDim);
      const Array<float> filters(static_cast<size_t>(kHeads * kDim));
      fill_bytes(filters.data(), 0x3c, filters.size() * sizeof(float), stream);
      report(
          "score: dots, a layer of 8 heads x 4k (8 MB)", stream,
          [&] {
            for (int layer = 0; layer < kLayers; ++layer) {
              score_dots(small.format(), small.some(layer * kHeads, kHeads), filters.data(),
                         stream);
            }
          },
          small.key_bytes(), kLayers, "5 µs");
    }
    measure_statistics(stream, rows, 32768, 4);
    measure_select(stream, rows, 32768);
    rows.keep_copy();
    measure_eviction(stream, rows, 2048);
    measure_eviction(stream, rows, 512);
    measure_chunks(stream);
  }
  measure_decodes(stream);
  return 0;
}

}  // namespace
}  // namespace winnow::bench

int main(int argc, char** argv) {
  try {
    winnow::bench::wanted = argc > 1 ? argv[1] : "";
    return winnow::bench::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
}
