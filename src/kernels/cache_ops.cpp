#include "kernels/cache_ops.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <new>

#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "kernels/append.h"
#include "kernels/blocks.h"

namespace winnow::kernels {
namespace {

constexpr size_t kAlignFloats = kLineBytes / sizeof(float);

size_t align(size_t floats) {
  return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

void decay_mass(std::span<int64_t> mass, float decay) {
  if (decay == 1.0F) {
    return;
  }
  for (int64_t& each : mass) {
    each = static_cast<int64_t>(static_cast<double>(each) * static_cast<double>(decay));
  }
}

}  // namespace

void StepContext::set_slices(std::span<const Slice> slices) {
  slices_.assign(slices.begin(), slices.end());
  items_.clear();
  n_tokens_ = 0;
  n_decode_groups_ = 0;
  n_mass_rows_ = 0;
  n_turned_rows_ = 0;
  Rows rows;
  int rotation_end = 0;
  bool needs_turns = false;
  int index = 0;
  for (const Slice& slice : slices_) {
    WINNOW_CHECK(slice.first_token == n_tokens_ && slice.n_tokens > 0);
    n_tokens_ += slice.n_tokens;
    rows.n_positions = std::max(rows.n_positions, slice.first_pos + slice.n_tokens);
    const int n_slots = cache::Cache::most_slots(slice.cache->shape().max_rows);
    rows.n_most = std::max(rows.n_most, n_slots);
    if (slice.cache->shape().stores_rotations) {
      n_turned_rows_ = std::max(n_turned_rows_, n_slots);
      rotation_end = std::max(
          {rotation_end, slice.cache->rotation_end(), slice.first_rotation + slice.n_tokens});
    }
    if (slice.cache->shape().stores_mass) {
      // Layers that others have been cut before hold no more rows than positions.
      n_mass_rows_ = std::max(
          n_mass_rows_, std::min(slice.cache->longest_slots(), slice.first_pos) + slice.n_tokens);
    }
    needs_turns |= slice.needs_turns();
    rows.has_chunks |= slice.chunk_attention.is_wanted();
    if (slice.is_prompt) {
      add_prompt_items(index);
    } else {
      add_decode_items(index);
    }
    ++index;
  }
  rows.n_mass = n_mass_rows_;
  rows.n_turned = n_turned_rows_;
  thread_floats_ = thread_floats(rows);
  weights_offset_ = thread_floats_ * static_cast<size_t>(n_threads_);
  partials_offset_ =
      weights_offset_ + weights_floats(n_mass_rows_) * static_cast<size_t>(n_decode_groups_);
  const size_t needed = memory_floats(rows, n_decode_groups_);
  try {
    if (memory_.size() < needed) {
      memory_.resize(needed);
    }
    if (needs_turns) {
      set_turns();
    }
    if (n_turned_rows_ > 0) {
      turns_of_keys_.reserve(rotation_end);
      // A window may hold more rows than there are positions.
      turns_of_windowed_keys_.reserve(rotation_end + n_turned_rows_);
    }
    if (n_counters_ < n_decode_groups_) {
      n_items_done_ = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(n_decode_groups_));
      n_counters_ = n_decode_groups_;
    }
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted,
                "no memory for " + format_bytes(needed * sizeof(float)) + " of attention scratch");
  }
}

void StepContext::set_turns() {
  const size_t n_rot = rotation().n_rot();
  const size_t n_floats = static_cast<size_t>(n_tokens_) * n_rot;
  if (turns_.size() < n_floats) {
    turns_.resize(n_floats);
  }
  for (const Slice& slice : slices_) {
    for (int i = 0; slice.needs_turns() && i < slice.n_tokens; ++i) {
      turns_at(rotation(), slice.first_rotation + i,
               {turns_.data() + static_cast<size_t>(slice.first_token + i) * n_rot, n_rot});
    }
  }
}

// The lags of keys come first, then the mass of a tile, then the kernel's scratch.
size_t StepContext::thread_floats(const Rows& rows) const {
  const size_t lags = align(static_cast<size_t>(rows.n_turned));
  const size_t tile_mass = align(2 * static_cast<size_t>(rows.n_mass));
  const size_t prompt =
      prompt_scratch_floats(shape_.head_dim, rows.n_positions, rows.n_mass, rows.n_most);
  const size_t decode = decode_scratch_floats(shape_.gqa_group_size(), shape_.head_dim,
                                              rows.n_positions, rows.n_most);
  const size_t chunk = align(2 * size_t{kMaxChunkLength}) + chunk_scratch_floats(shape_.head_dim);
  return align(
      std::max({lags + tile_mass + prompt, lags + decode,
                QueryMoments::scratch_floats(shape_.head_dim), rows.has_chunks ? chunk : 0}));
}

size_t StepContext::weights_floats(int n_mass_rows) const {
  return align(static_cast<size_t>(shape_.gqa_group_size()) * static_cast<size_t>(n_mass_rows));
}

size_t StepContext::memory_floats(const Rows& rows, int n_decode_groups) const {
  const size_t group_floats =
      weights_floats(rows.n_mass) +
      kMaxBlocks * decode_partial_floats(shape_.gqa_group_size(), shape_.head_dim);
  return kAlignFloats + thread_floats(rows) * static_cast<size_t>(n_threads_) +
         static_cast<size_t>(n_decode_groups) * group_floats;
}

size_t StepContext::measure_scratch(const Demand& demand) const {
  const size_t turns = static_cast<size_t>(demand.n_with_turns) * rotation().n_rot();
  const int n_slots = cache::Cache::most_slots(demand.n_rows);
  const Rows rows{.n_positions = demand.n_positions,
                  .n_most = n_slots,
                  .n_mass = demand.n_mass_rows,
                  .n_turned = demand.is_turned ? n_slots : 0,
                  .has_chunks = demand.has_chunks};
  const int rotation_end = std::max(demand.rotation_end, demand.n_rows);
  const size_t tables =
      demand.is_turned
          ? TurnTable::bytes(rotation().n_rot(), rotation_end) +
                TurnTable::bytes(turns_of_windowed_keys_.rotation().n_rot(), rotation_end + n_slots)
          : 0;
  return (memory_floats(rows, demand.is_decoded ? shape_.n_kv_heads : 0) + turns) * sizeof(float) +
         tables;
}

float* StepContext::scratch_of(int thread) {
  return align_to_line(memory_.data()) + static_cast<size_t>(thread) * thread_floats_;
}

// Cuts a prompt slice into tiles of lanes; no tile has tokens of two block lengths.
void StepContext::add_prompt_items(int slice_index) {
  const Slice& slice = slices_[static_cast<size_t>(slice_index)];
  const int group = shape_.gqa_group_size();
  const int tile = prompt_tile_lanes();
  std::vector<std::pair<int, int>> tiles;  // first lane, lanes
  for (int token = 0; token < slice.n_tokens;) {
    int end = token + 1;
    const int length = block_length(slice.first_pos + token);
    while (end < slice.n_tokens && block_length(slice.first_pos + end) == length) {
      ++end;
    }
    for (int lane = token * group; lane < end * group; lane += tile) {
      tiles.emplace_back(lane, std::min(tile, end * group - lane));
    }
    token = end;
  }
  // Last tiles first: they see the most rows, and what is left at the end should be small.
  std::reverse(tiles.begin(), tiles.end());
  for (const auto& [first_lane, n_lanes] : tiles) {
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      items_.push_back({.slice = slice_index,
                        .kv_head = kv_head,
                        .first_lane = first_lane,
                        .n_lanes = n_lanes,
                        .first_block = 0,
                        .n_blocks = 0,
                        .group_index = 0,
                        .n_in_group = 0});
    }
  }
}

// Whoever attends to a head chooses its pages, so with pages a head is one item. Else blocks with few rows go together; how
// many that is of some heads only decides about who does it.
void StepContext::add_decode_items(int slice_index) {
  constexpr int kRowsWorthAnItem = 256;
  const Slice& slice = slices_[static_cast<size_t>(slice_index)];
  WINNOW_CHECK(slice.n_tokens == 1);
  const int blocks = n_blocks(slice.first_pos);
  const int n_rows = slice.cache->longest() + 1;
  const int n_items =
      slice.pages != nullptr
          ? 1
          : std::clamp((n_rows + kRowsWorthAnItem / 2) / kRowsWorthAnItem, 1, blocks);
  for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
    for (int item = 0; item < n_items; ++item) {
      const int first_block = item * blocks / n_items;
      items_.push_back({.slice = slice_index,
                        .kv_head = kv_head,
                        .first_lane = 0,
                        .n_lanes = 0,
                        .first_block = first_block,
                        .n_blocks = (item + 1) * blocks / n_items - first_block,
                        .group_index = n_decode_groups_,
                        .n_in_group = n_items});
    }
    ++n_decode_groups_;
  }
}

void StepContext::append(int layer, const ggml_tensor* k, const ggml_tensor* v, int thread,
                         int n_threads) noexcept {
  const auto row = static_cast<size_t>(shape_.head_dim);
  const size_t token = row * static_cast<size_t>(shape_.n_kv_heads);
  int item = 0;
  for (const Slice& slice : slices_) {
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head, ++item) {
      if (item % n_threads != thread) {
        continue;
      }
      const size_t first =
          static_cast<size_t>(slice.first_token) * token + static_cast<size_t>(kv_head) * row;
      NewRows rows{.keys = static_cast<const float*>(k->data) + first,
                   .values = static_cast<const float*>(v->data) + first,
                   .stride = token,
                   .n_rows = slice.n_tokens,
                   .first_pos = slice.first_pos,
                   .first_rotation = slice.first_rotation};
      cache::Cache& cache = *slice.cache;
      auto target = cache.reserve(layer, kv_head, slice.n_tokens);
      if (slice.directions != nullptr) {
        rows.direction = slice.directions->of(layer, kv_head);
      }
      if (!rows.direction.empty() && slice.directions->is_before_rotation) {
        const cache::Cache::Target scored = target;
        target.scores = nullptr;
        const auto counts = append_rows(rows, cache.shape(), target);
        score_turned(slice, rows.direction, scored, scratch_of(thread));
        cache.commit(layer, kv_head, slice.n_tokens, counts);
        continue;
      }
      cache.commit(layer, kv_head, slice.n_tokens, append_rows(rows, cache.shape(), target));
    }
  }
}

void StepContext::score_turned(const Slice& slice, std::span<const float> direction,
                               const cache::Cache::Target& target, float* scratch) const noexcept {
  const cache::CacheShape& shape = slice.cache->shape();
  const cache::HeadRows rows{.keys = target.keys,
                             .values = target.values,
                             .positions = target.positions,
                             .scores = nullptr,
                             .mass = nullptr,
                             .hidden = nullptr,
                             .n = slice.n_tokens,
                             .n_hidden = 0,
                             .head_dim = shape.head_dim,
                             .key_type = shape.key_type,
                             .value_type = shape.value_type,
                             .has_nonfinite_values = false};
  const size_t n_rot = rotation().n_rot();
  const auto n_tokens = static_cast<size_t>(slice.n_tokens);
  turned_scores(
      rows, direction, rotation(),
      std::span(turns_).subspan(static_cast<size_t>(slice.first_token) * n_rot, n_tokens * n_rot),
      {scratch, direction.size()}, {target.scores, n_tokens});
}

void StepContext::attend(const LayerOps& ops, const ggml_tensor* q, ggml_tensor* out, int thread,
                         int n_threads) noexcept {
  if (thread == 0) {
    remember_queries(ops.layer, q);
  }
  count_queries(ops.layer, q, thread, n_threads);
  float* const scratch = scratch_of(thread);
  for (size_t i = static_cast<size_t>(thread); i < items_.size();
       i += static_cast<size_t>(n_threads)) {
    const Item& item = items_[i];
    if (item.n_lanes > 0) {
      attend_prompt_item(item, ops, q, out, scratch);
    } else {
      attend_decode_item(item, ops, q, out, scratch, page_scratch_[static_cast<size_t>(thread)]);
    }
  }
  if (thread == 0) {  // padding
    const auto n_rows = static_cast<size_t>(out->ne[1]);
    const auto used = static_cast<size_t>(n_tokens_);
    std::memset(static_cast<std::byte*>(out->data) + used * out->nb[1], 0,
                (n_rows - used) * out->nb[1]);
  }
}

void StepContext::remember_queries(int layer, const ggml_tensor* q) noexcept {
  const size_t token = static_cast<size_t>(shape_.n_heads) * static_cast<size_t>(shape_.head_dim);
  for (const Slice& slice : slices_) {
    if (slice.queries != nullptr) {
      slice.queries->add(
          layer,
          static_cast<const float*>(q->data) + static_cast<size_t>(slice.first_token) * token,
          slice.n_tokens, slice.first_pos, slice.first_rotation);
    }
  }
}

// Each head is one thread's.
void StepContext::attend_chunks(const LayerOps& ops, const ggml_tensor* q, int thread,
                                int n_threads) noexcept {
  int item = 0;
  for (const Slice& slice : slices_) {
    const int length = slice.chunk_attention.length;
    if (length == 0 || ops.swa_window > 0) {
      continue;
    }
    const int end_pos = slice.first_pos + slice.n_tokens;
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head, ++item) {
      if (item % n_threads != thread) {
        continue;
      }
      for (int begin = slice.first_pos / length * length; begin + length <= end_pos;
           begin += length) {
        attend_chunk(slice, ops, q, kv_head, begin, scratch_of(thread));
      }
    }
  }
}

void StepContext::attend_chunk(const Slice& slice, const LayerOps& ops, const ggml_tensor* q,
                               int kv_head, int begin, float* scratch) noexcept {
  const int length = slice.chunk_attention.length;
  const int group = shape_.gqa_group_size();
  const auto row = static_cast<size_t>(shape_.head_dim);
  const size_t token = row * static_cast<size_t>(shape_.n_heads);
  const cache::HeadRows rows = slice.cache->rows(ops.layer, kv_head);
  const ChunkSlots slots = chunk_slots(rows, begin, length);
  const auto n_slots = static_cast<size_t>(slots.last - slots.first);
  const std::span<int64_t> mass(reinterpret_cast<int64_t*>(scratch), n_slots);
  scratch += align(2 * size_t{kMaxChunkLength});
  std::ranges::fill(mass, 0);
  const auto ask = [&](const float* queries, int n_tokens) {
    add_chunk_attention(
        rows, slots, {.q = queries, .token_stride = token, .n_heads = group, .n_tokens = n_tokens},
        slice.chunk_attention.is_scaled ? shape_.scale : 1.0F, scratch, mass);
  };
  // The queries of tokens before these, which lie in a ring.
  const QueryWindow& before = *slice.queries;
  if (before.end_pos(ops.layer) == slice.first_pos) {
    const int n_most = before.shape().n_queries;
    for (int pos = std::max(begin, before.begin_pos(ops.layer)); pos < slice.first_pos;) {
      const int n = std::min(slice.first_pos - pos, n_most - pos % n_most);
      ask(before.query(ops.layer, kv_head * group, pos), n);
      pos += n;
    }
  }
  const int first = std::max(begin, slice.first_pos);
  ask(static_cast<const float*>(q->data) +
          static_cast<size_t>(slice.first_token + first - slice.first_pos) * token +
          static_cast<size_t>(kv_head * group) * row,
      begin + length - first);
  float* const scores = slice.cache->scores(ops.layer, kv_head) + slots.first;
  std::ranges::transform(mass, scores, [](int64_t each) {
    return static_cast<float>(static_cast<double>(each) / kMassScale);
  });
}

// Each head is counted by one thread.
void StepContext::count_queries(int layer, const ggml_tensor* q, int thread,
                                int n_threads) noexcept {
  const auto row = static_cast<size_t>(shape_.head_dim);
  const size_t token = row * static_cast<size_t>(shape_.n_heads);
  int item = 0;
  for (const Slice& slice : slices_) {
    if (slice.moments == nullptr || !slice.moments->watches(layer)) {
      continue;
    }
    const auto first = static_cast<size_t>(slice.first_token);
    for (int head = 0; head < shape_.n_heads; ++head, ++item) {
      if (item % n_threads == thread) {
        slice.moments->add(layer, head,
                           {.q = static_cast<const float*>(q->data) + first * token +
                                 static_cast<size_t>(head) * row,
                            .stride = token,
                            .n_tokens = slice.n_tokens,
                            .first_pos = slice.first_pos,
                            .turns = turns_.data() + first * rotation().n_rot()},
                           rotation(), scratch_of(thread));
      }
    }
  }
}

void StepContext::compare(int layer, const ggml_tensor* before, const ggml_tensor* after,
                          int thread, int n_threads) noexcept {
  const auto n_embd = static_cast<size_t>(before->ne[0]);
  const auto* const from = static_cast<const float*>(before->data);
  const auto* const to = static_cast<const float*>(after->data);
  for (const Slice& slice : slices_) {
    for (int i = thread; slice.similarity != nullptr && i < slice.n_tokens; i += n_threads) {
      const size_t at = static_cast<size_t>(slice.first_token + i) * n_embd;
      slice.similarity->add(layer, cosine(from + at, to + at, static_cast<int>(n_embd)));
    }
  }
}

void StepContext::observe(const LayerOps& ops, const ggml_tensor* q, const ggml_tensor* k,
                          const ggml_tensor* v, const ggml_tensor* input, int thread,
                          int n_threads) noexcept {
  const TurnTable& turns = ops.swa_window > 0 ? turns_of_windowed_keys_ : turns_of_keys_;
  for (const Slice& slice : slices_) {
    if (slice.observer == nullptr) {
      continue;
    }
    const auto tokens_of = [&](const ggml_tensor* heads) {
      return static_cast<const float*>(heads->data) +
             slice.first_token * heads->ne[0] * heads->ne[1];
    };
    slice.observer->observe(
        {.layer = ops.layer,
         .n_tokens = slice.n_tokens,
         .first_pos = slice.first_pos,
         .first_rotation = slice.first_rotation,
         .shape = shape_,
         .rotation = &turns.rotation(),
         .queries = tokens_of(q),
         .keys = tokens_of(k),
         .values = tokens_of(v),
         .n_embd = static_cast<int>(input->ne[0]),
         .inputs = static_cast<const float*>(input->data) + slice.first_token * input->ne[0]},
        thread, n_threads);
  }
}

const KeyTurns* StepContext::turns_of(const Slice& slice, const LayerOps& ops,
                                      const cache::HeadRows& rows, float* lags,
                                      KeyTurns& turns) const {
  if (rows.rotations == nullptr) {
    return nullptr;
  }
  const std::span<int32_t> of_rows(reinterpret_cast<int32_t*>(lags), static_cast<size_t>(rows.n));
  turns = {.table = ops.swa_window > 0 ? &turns_of_windowed_keys_ : &turns_of_keys_,
           .lags = of_rows.data()};
  const int end = slice.first_rotation + slice.n_tokens;
  return contiguous_lags(rows, end, of_rows) ? &turns : nullptr;
}

void StepContext::attend_prompt_item(const Item& item, const LayerOps& ops, const ggml_tensor* q,
                                     ggml_tensor* out, float* scratch) noexcept {
  const Slice& slice = slices_[static_cast<size_t>(item.slice)];
  const auto row = static_cast<size_t>(shape_.head_dim);
  const size_t token = row * static_cast<size_t>(shape_.n_heads);
  const size_t first = static_cast<size_t>(slice.first_token) * token +
                       static_cast<size_t>(item.kv_head * shape_.gqa_group_size()) * row;
  PromptQueries queries{.q = static_cast<const float*>(q->data) + first,
                        .out = static_cast<float*>(out->data) + first,
                        .token_stride = token,
                        .gqa_group_size = shape_.gqa_group_size(),
                        .swa_window = ops.swa_window,
                        .first_pos = slice.first_pos,
                        .first_lane = item.first_lane,
                        .n_lanes = item.n_lanes};
  const cache::HeadRows rows = slice.cache->rows(ops.layer, item.kv_head);
  KeyTurns turns;
  queries.turns = turns_of(slice, ops, rows, scratch, turns);
  scratch += align(static_cast<size_t>(n_turned_rows_));
  int64_t* const mass = ops.swa_window == 0 ? slice.cache->mass(ops.layer, item.kv_head) : nullptr;
  if (mass == nullptr) {
    attend_prompt(rows, queries, shape_.scale, scratch);
    return;
  }
  const int n_rows = std::min(rows.n, n_mass_rows_);  // rows behind these are at later positions
  queries.mass = reinterpret_cast<int64_t*>(scratch);
  std::fill_n(queries.mass, n_rows, 0);
  attend_prompt(rows, queries, shape_.scale,
                scratch + align(2 * static_cast<size_t>(n_mass_rows_)));
  const std::lock_guard lock(mass_mutexes_[static_cast<size_t>(item.kv_head)]);
  std::transform(queries.mass, queries.mass + n_rows, mass, mass, std::plus<>());
}

std::span<const RowRun> StepContext::choose_runs(const Slice& slice, const Item& item, int layer,
                                                 const cache::HeadRows& rows,
                                                 const DecodeQuery& query,
                                                 Scratch& scratch) noexcept {
  if (slice.pages == nullptr) {
    return {};
  }
  try {
    const auto n = static_cast<size_t>(query.gqa_group_size * shape_.head_dim);
    return slice.pages->choose(layer, item.kv_head, rows, {query.q, n}, scratch);
  } catch (const std::bad_alloc&) {
    is_out_of_memory_ = true;
    return {};
  }
}

void StepContext::check_computed() {
  if (is_out_of_memory_.exchange(false)) {
    throw Error(ErrorCode::kResourceExhausted, "no memory for the bounds of pages of keys");
  }
}

// The thread that finishes the last item of a KV head merges all blocks; the order of merging is fixed.
void StepContext::attend_decode_item(const Item& item, const LayerOps& ops, const ggml_tensor* q,
                                     ggml_tensor* out, float* scratch,
                                     Scratch& page_scratch) noexcept {
  const Slice& slice = slices_[static_cast<size_t>(item.slice)];
  const int group = shape_.gqa_group_size();
  const auto row = static_cast<size_t>(shape_.head_dim);
  const size_t first =
      static_cast<size_t>(slice.first_token) * row * static_cast<size_t>(shape_.n_heads) +
      static_cast<size_t>(item.kv_head * group) * row;
  const size_t partial_floats = decode_partial_floats(group, shape_.head_dim);
  float* const partials = align_to_line(memory_.data()) + partials_offset_ +
                          static_cast<size_t>(item.group_index) * kMaxBlocks * partial_floats;
  DecodeQuery query{.q = static_cast<const float*>(q->data) + first,
                    .gqa_group_size = group,
                    .swa_window = ops.swa_window,
                    .pos = slice.first_pos};
  const cache::HeadRows rows = slice.cache->rows(ops.layer, item.kv_head);
  KeyTurns turns;
  query.turns = turns_of(slice, ops, rows, scratch, turns);
  scratch += align(static_cast<size_t>(n_turned_rows_));
  int64_t* const mass = ops.swa_window == 0 ? slice.cache->mass(ops.layer, item.kv_head) : nullptr;
  if (mass != nullptr) {
    query.weights = align_to_line(memory_.data()) + weights_offset_ +
                    static_cast<size_t>(item.group_index) * weights_floats(n_mass_rows_);
    query.weights_stride = static_cast<size_t>(n_mass_rows_);
  }
  query.runs = choose_runs(slice, item, ops.layer, rows, query, page_scratch);
  attend_decode_blocks(rows, query, item.first_block, item.n_blocks, shape_.scale, scratch,
                       partials + static_cast<size_t>(item.first_block) * partial_floats);
  std::atomic<int>& n_done = n_items_done_[static_cast<size_t>(item.group_index)];
  if (n_done.fetch_add(1, std::memory_order_acq_rel) + 1 == item.n_in_group) {
    n_done.store(0, std::memory_order_relaxed);
    merge_decode_blocks(partials, n_blocks(slice.first_pos), group, shape_.head_dim,
                        static_cast<float*>(out->data) + first);
    if (mass != nullptr) {
      decay_mass({mass, static_cast<size_t>(rows.n)}, slice.mass_decay);
      add_decode_mass(rows, query, partials, mass);
    }
  }
}

ggml_tensor* build_append(ggml_context* ctx, LayerOps* ops, ggml_tensor* k, ggml_tensor* v) {
  WINNOW_CHECK(ggml_is_contiguous(k) && ggml_is_contiguous(v));
  std::array<ggml_tensor*, 2> sources{k, v};
  const auto work = [](ggml_tensor* dst, int thread, int n_threads, void* user_data) {
    const auto* const layer = static_cast<LayerOps*>(user_data);
    layer->step->append(layer->layer, dst->src[0], dst->src[1], thread, n_threads);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, sources.data(), sources.size(), work,
                        GGML_N_TASKS_MAX, ops);
}

ggml_tensor* build_compare(ggml_context* ctx, LayerOps* ops, ggml_tensor* before,
                           ggml_tensor* after) {
  WINNOW_CHECK(ggml_is_contiguous(before) && ggml_is_contiguous(after));
  std::array<ggml_tensor*, 2> sources{before, after};
  const auto work = [](ggml_tensor* dst, int thread, int n_threads, void* user_data) {
    const auto* const layer = static_cast<LayerOps*>(user_data);
    layer->step->compare(layer->layer, dst->src[0], dst->src[1], thread, n_threads);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, sources.data(), sources.size(), work,
                        GGML_N_TASKS_MAX, ops);
}

ggml_tensor* build_attend_chunks(ggml_context* ctx, LayerOps* ops, ggml_tensor* q) {
  WINNOW_CHECK(ggml_is_contiguous(q));
  std::array<ggml_tensor*, 1> sources{q};
  const auto work = [](ggml_tensor* dst, int thread, int n_threads, void* user_data) {
    const auto* const layer = static_cast<LayerOps*>(user_data);
    layer->step->attend_chunks(*layer, dst->src[0], thread, n_threads);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, sources.data(), sources.size(), work,
                        GGML_N_TASKS_MAX, ops);
}

ggml_tensor* build_observe(ggml_context* ctx, LayerOps* ops, ggml_tensor* q, ggml_tensor* k,
                           ggml_tensor* v, ggml_tensor* input) {
  std::array<ggml_tensor*, 4> sources{q, k, v, input};
  WINNOW_CHECK(std::ranges::all_of(sources, ggml_is_contiguous));
  const auto work = [](ggml_tensor* dst, int thread, int n_threads, void* user_data) {
    const auto* const layer = static_cast<LayerOps*>(user_data);
    layer->step->observe(*layer, dst->src[0], dst->src[1], dst->src[2], dst->src[3], thread,
                         n_threads);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, sources.data(), sources.size(), work,
                        GGML_N_TASKS_MAX, ops);
}

ggml_tensor* build_attend(ggml_context* ctx, LayerOps* ops, ggml_tensor* q, ggml_tensor* appended) {
  WINNOW_CHECK(ggml_is_contiguous(q));
  std::array<ggml_tensor*, 2> sources{q, appended};
  const auto work = [](ggml_tensor* dst, int thread, int n_threads, void* user_data) {
    const auto* const layer = static_cast<LayerOps*>(user_data);
    layer->step->attend(*layer, dst->src[0], dst, thread, n_threads);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, q->ne[0] * q->ne[1], q->ne[2], 1, 1, sources.data(),
                        sources.size(), work, GGML_N_TASKS_MAX, ops);
}

}  // namespace winnow::kernels
