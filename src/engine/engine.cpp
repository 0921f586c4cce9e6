#include "engine/engine.h"

#include <algorithm>
#include <memory>
#include <new>
#include <set>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "engine/admission.h"
#include "engine/device_runner.h"
#include "engine/evict.h"

namespace winnow::engine {
namespace {

// Throws invalid_argument where two of the inputs have the same sequence.
template <typename Input>
void check_distinct(std::span<const Input> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (inputs[j].sequence == inputs[i].sequence) {
        throw Error(ErrorCode::kInvalidArgument, "the same sequence appears twice in one batch");
      }
    }
  }
}

kernels::AttendShape attend_shape(const model::Model& model) {
  return {.n_heads = model.hyper().n_heads,
          .n_kv_heads = model.hyper().n_kv_heads,
          .head_dim = model.hyper().head_dim,
          .scale = model::attention_scale(model.family(), model.hyper())};
}

int n_ctx(const model::Model& model, const EngineOptions& options) {
  return options.n_ctx > 0 ? options.n_ctx : model.hyper().n_ctx_scaled;
}

void set_input(ggml_tensor* tensor, const void* data) {
  ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
}

// What the graph's first layer begins with: a chunk's tokens, or the residual stream that earlier layers left.
void set_residual(const StepGraph& graph, const Chunk& chunk, const float* residual) {
  if (graph.tokens != nullptr) {
    set_input(graph.tokens, chunk.tokens.data());
  } else {
    set_input(graph.residual, residual);
  }
}

bool compares_residual(const Chunk& chunk) {
  return std::ranges::any_of(
      chunk.slices, [](const kernels::Slice& slice) { return slice.similarity != nullptr; });
}

// The residual stream between layers, on the device if there is one.
class HeldResidual {
 public:
  HeldResidual(DeviceRunner* device, std::span<float> residual) : device_(device) {
    if (device_ != nullptr) {
      device_->hold(residual);
    }
  }
  ~HeldResidual() {
    if (device_ != nullptr) {
      device_->drop();
    }
  }
  HeldResidual(const HeldResidual&) = delete;
  HeldResidual& operator=(const HeldResidual&) = delete;

  void fetch(std::span<float> part) const {
    if (device_ != nullptr) {
      device_->fetch(part);
    }
  }

 private:
  DeviceRunner* device_;
};

// Of the tokens that pass the model: those that are not fed to replay others.
double share_of_reading(std::span<const Feed> feeds, PromptEviction eviction) {
  double n_read = 0;
  double n_replayed = 0;
  for (const Feed& feed : feeds) {
    const policy::Replay replay = feed.sequence->policy.needs().replay;
    n_read += static_cast<double>(feed.tokens.size());
    if (eviction == PromptEviction::kAfter && replay.is_wanted()) {
      n_replayed += replay_size(feed.replay->request,
                                static_cast<int>(feed.replay->document.size()), replay.chunk)
                        .n_tokens;
    }
  }
  return n_read / (n_read + n_replayed);
}

bool attends_chunks(const Chunk& chunk) {
  return std::ranges::any_of(
      chunk.slices, [](const kernels::Slice& slice) { return slice.chunk_attention.is_wanted(); });
}

bool is_observed(const Chunk& chunk) {
  return std::ranges::any_of(chunk.slices,
                             [](const kernels::Slice& slice) { return slice.observer != nullptr; });
}

}  // namespace

Engine::Engine(const model::Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      backend_(options.n_threads),
      evictor_(model, attend_shape(model), model.rotation(n_ctx(model, options)),
               options.n_threads),
      step_(attend_shape(model), options.n_threads,
            {.all = model.rotation(n_ctx(model, options)), .windowed = model.windowed_rotation()}),
      end_aligned_(attend_shape(model), options.n_threads),
      graphs_(model, n_ctx(model, options), step_, end_aligned_, backend_) {
  if (options.n_batch < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "a batch of " + std::to_string(options.n_batch) + " tokens; at least 1 is needed");
  }
  if (options_.is_on_gpu) {
    device_ = std::make_unique<DeviceRunner>(model, attend_shape(model), options_.n_batch,
                                             n_ctx(model, options), evictor_.parallel());
  }
}

Engine::~Engine() = default;

std::shared_ptr<cache::RemoteRows> Engine::make_rows(const cache::CacheShape& shape) {
  return device_ ? device_->make_rows(shape) : nullptr;
}

std::span<const policy::LayerView> Engine::view(const Sequence& sequence) {
  if (sequence.cache.remote() != nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "rows on a GPU cannot be looked at; what does that runs on the CPU (-ngl 0)");
  }
  return evictor_.view(sequence);
}

// Throws invalid_argument, or unsupported where the policy cannot be fed there.
void Engine::check_place(const Sequence& sequence) const {
  if ((sequence.cache.remote() != nullptr) != (device_ != nullptr)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("the rows of the sequence lie in the memory of ") +
                    (device_ ? "the host, and the engine runs on a GPU"
                             : "a GPU, and the engine runs on the CPU"));
  }
  if (device_) {
    check_gathered_on_gpu(sequence.policy);
  }
}

std::vector<std::vector<float>> Engine::feed(std::span<const Feed> feeds,
                                             const FeedOptions& options) {
  check_distinct(feeds);
  for (const Feed& feed : feeds) {
    if (feed.tokens.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "there are no tokens to feed");
    }
    check_admissible(*feed.sequence,
                     {.n_tokens = static_cast<int>(feed.tokens.size()),
                      .n_batch = options_.n_batch,
                      .is_cut = cuts_chunks(options.eviction),
                      .has_slack = options.eviction != PromptEviction::kLegacyOrder},
                     model_.hyper());
    check_tokens(feed.tokens, model_.hyper().n_vocab);
    check_suits(feed.sequence->policy, model_);
  }
  for (const Feed& feed : feeds) {
    check_order(options.order, options.eviction, feed.sequence->policy);
    check_place(*feed.sequence);
    if (options.eviction == PromptEviction::kAfter && feed.replay == nullptr &&
        feed.sequence->policy.needs().replay.is_wanted()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "policy '" + feed.sequence->policy.spec() +
                      "' has documents replayed before rows go, and none is given to replay");
    }
  }
  if (device_ && (options.eviction == PromptEviction::kLegacyOrder ||
                  std::ranges::any_of(feeds, [](const Feed& feed) { return feed.observer; }))) {
    throw Error(ErrorCode::kUnsupported,
                "legacy order, and showing activations, run on the CPU only (-ngl 0)");
  }
  for (const Feed& feed : feeds) {
    watch(*feed.sequence);
  }
  // Of the progress, what is not replaying.
  const double reading = share_of_reading(feeds, options.eviction);
  FeedOptions read_options = options;
  if (options.progress && reading < 1) {
    read_options.progress = [&](double fraction) { options.progress(fraction * reading); };
  }
  PromptFeed prompt(feeds, read_options, options_.n_batch);
  for (const Feed& feed : feeds) {
    feed.sequence->is_usable = false;  // until all layers agree again
    feed.sequence->evicted_during_prompt |= feed.sequence->cache.has_gaps();
  }
  if (options.eviction == PromptEviction::kLegacyOrder) {
    feed_legacy_order(prompt);
  } else if (options.order == PrefillOrder::kChunkMajor) {
    feed_chunk_major(prompt);
  } else {
    feed_layer_major(prompt);
  }
  std::vector<std::vector<float>> logits;
  for (size_t i = 0; i < feeds.size(); ++i) {
    run_output(prompt.wanted(i), logits.emplace_back());
    feeds[i].sequence->positions_fed += static_cast<int>(feeds[i].tokens.size());
  }
  if (options.eviction == PromptEviction::kAfter && options.order == PrefillOrder::kChunkMajor) {
    FeedOptions replay_options{.progress = {}, .cancel = options.cancel};
    if (options.progress) {
      replay_options.progress = [&](double fraction) {
        options.progress(reading + (1 - reading) * fraction);
      };
    }
    wait();
    for (const Feed& feed : feeds) {
      replay_and_cut(feed, replay_options);
    }
  }
  for (const Feed& feed : feeds) {
    feed.sequence->is_usable = true;
  }
  return logits;
}

// Has the sequence keep what its policy needs of queries.
void Engine::watch(Sequence& sequence) const {
  if (sequence.queries.shape().n_queries < sequence.policy.needs().n_queries) {
    sequence.queries = query_window(model_.hyper(), sequence.policy);
  }
  if (sequence.key_directions.is_empty()) {
    sequence.key_directions = key_directions(model_.hyper(), sequence.policy);
  }
  if (sequence.similarity.is_empty()) {
    sequence.similarity = residual_similarity(model_.hyper(), sequence.policy);
  }
  if (sequence.moments.shape().n_heads == 0 && sequence.policy.needs().query_moments) {
    sequence.moments = query_moments(model_.hyper(), sequence.policy);
  }
  if (sequence.pages.is_empty()) {
    sequence.pages = page_reads(model_.hyper(), sequence.cache.shape(), sequence.policy);
  }
}

void Engine::feed_chunk_major(PromptFeed& prompt) {
  const int n_layers = model_.hyper().n_layers;
  const auto n_embd = static_cast<size_t>(model_.hyper().n_embd);
  prompt.expect_steps(static_cast<int64_t>(prompt.chunks.size()));
  std::vector<float> residual;
  for (Chunk& chunk : prompt.chunks) {
    prompt.check_cancel();
    for (size_t i = 0; i < chunk.slices.size(); ++i) {
      if (chunk.sequences[i]->policy.counts_rows()) {  // earlier chunks may have been cut
        chunk.rotate(i, chunk.sequences[i]->next_rotation());
      }
    }
    residual.resize(chunk.tokens.size() * n_embd);
    run_layers(chunk, 0, n_layers, residual.data(), prompt.wants_rows(chunk));
    prompt.collect(chunk, residual, model_.hyper().n_embd);
    settle(chunk, 0, n_layers);
    for (size_t i = 0; i < chunk.slices.size(); ++i) {
      Sequence& sequence = *chunk.sequences[i];
      const bool is_end = prompt.is_end(chunk.slices[i], sequence);
      if (prompt.options.eviction != PromptEviction::kPerChunk ||
          !(is_end || is_due(sequence.policy, sequence.cache))) {
        continue;
      }
      wait();
      if (evictor_.evict(sequence)) {
        ++sequence.evictions.count;
        sequence.evicted_during_prompt |= !is_end;
      }
    }
    prompt.step_done();
  }
}

void Engine::feed_layer_major(PromptFeed& prompt) {
  const int n_layers = model_.hyper().n_layers;
  const auto n_embd = static_cast<size_t>(model_.hyper().n_embd);
  prompt.expect_steps(static_cast<int64_t>(prompt.chunks.size()) * n_layers);
  size_t n_rows = 0;
  for (const Chunk& chunk : prompt.chunks) {
    n_rows += chunk.tokens.size();
  }
  // Of all chunks, one after the other [n_rows, n_embd]; not filled, since it lies in a GPU's memory where there is one.
  std::unique_ptr<float[]> floats;
  try {
    floats = std::make_unique_for_overwrite<float[]>(n_rows * n_embd);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted, "no memory for the residual stream (" +
                                                   format_bytes(n_rows * n_embd * sizeof(float)) +
                                                   ")");
  }
  const std::span<float> residual(floats.get(), n_rows * n_embd);
  peak_.residual_bytes = std::max(peak_.residual_bytes, residual.size_bytes());
  std::vector<std::vector<int64_t>> shares;  // [n_feeds, n_layers]
  for (const Feed& feed : prompt.feeds) {
    shares.push_back(evictor_.layer_shares(*feed.sequence, static_cast<int>(feed.tokens.size())));
  }
  const HeldResidual held(device_.get(), residual);
  std::set<Sequence*> evicted;
  // A GPU cuts a layer and goes on with the next one's first chunk; only then is it asked which rows went.
  std::vector<CutUnderWay> cuts(prompt.feeds.size());
  const auto finish_cuts = [&] {
    for (CutUnderWay& cut : cuts) {
      evictor_.finish(cut);
    }
  };
  for (int layer = 0; layer < n_layers; ++layer) {
    float* x = residual.data();
    for (const Chunk& chunk : prompt.chunks) {
      prompt.check_cancel();
      run_layers(chunk, layer, 1, x);
      finish_cuts();
      settle(chunk, layer, 1);
      x += chunk.tokens.size() * n_embd;
      prompt.step_done();
    }
    for (size_t i = 0; i < prompt.feeds.size(); ++i) {
      Sequence& sequence = *prompt.feeds[i].sequence;
      if (!chooses_on_device(sequence)) {
        wait();
      }
      if (prompt.options.eviction == PromptEviction::kAfter &&
          evictor_.start_evicting(sequence, layer, shares[i][static_cast<size_t>(layer)],
                                  cuts[i])) {
        evicted.insert(&sequence);
      }
    }
  }
  finish_cuts();
  for (Sequence* const sequence : evicted) {  // all layers are one occasion
    ++sequence->evictions.count;
  }
  std::span<float> rest = residual;
  for (const Chunk& chunk : prompt.chunks) {
    const std::span<float> of_chunk = rest.first(chunk.tokens.size() * n_embd);
    if (prompt.wants_rows(chunk)) {
      held.fetch(of_chunk);
    }
    prompt.collect(chunk, of_chunk, model_.hyper().n_embd);
    rest = rest.subspan(of_chunk.size());
  }
}

// Until the GPU, if there is one, has done all that it was asked for: so that eviction is timed alone.
void Engine::wait() const {
  if (device_) {
    device_->wait();
  }
}

void Engine::feed_legacy_order(PromptFeed& prompt) {
  const int n_layers = model_.hyper().n_layers;
  prompt.expect_steps(static_cast<int64_t>(prompt.chunks.size()) * n_layers);
  std::vector<float> residual;
  for (Chunk& chunk : prompt.chunks) {
    WINNOW_CHECK(chunk.sequences.size() == 1);
    Sequence& sequence = *chunk.sequences[0];
    if (sequence.policy.counts_rows()) {
      chunk.rotate(0, sequence.next_rotation());
    }
    residual.resize(chunk.tokens.size() * static_cast<size_t>(model_.hyper().n_embd));
    const std::vector<int64_t> shares = evictor_.layer_shares(sequence, chunk.n_tokens);
    bool is_cut = false;
    for (int layer = 0; layer < n_layers; ++layer) {
      prompt.check_cancel();
      if (model_.hyper().swa_window(layer) > 0) {
        run_layers(chunk, layer, 1, residual.data());
      } else {
        is_cut |=
            run_layer_legacy(chunk, layer, shares[static_cast<size_t>(layer)], residual.data());
      }
      settle(chunk, layer, 1);
      prompt.step_done();
    }
    prompt.collect(chunk, residual, model_.hyper().n_embd);
    sequence.evictions.count += is_cut ? 1 : 0;
    sequence.evicted_during_prompt |= is_cut;
  }
}

// As run_layers() of one layer, which is cut before the chunk attends to it. Returns whether rows went.
bool Engine::run_layer_legacy(const Chunk& chunk, int layer, int64_t share, float* residual) {
  Sequence& sequence = *chunk.sequences[0];
  GraphShape shape{.first_layer = layer,
                   .n_layers = 1,
                   .n_tokens = static_cast<int>(chunk.tokens.size()),
                   .has_logits = false,
                   .is_observed = is_observed(chunk),
                   .part = LayerPart::kUpToAppend};
  const auto copy_of = [](const ggml_tensor* tensor) {
    std::vector<float> floats(static_cast<size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, floats.data(), 0, ggml_nbytes(tensor));
    return floats;
  };
  step_.set_slices(chunk.slices);
  StepGraph& first = graphs_.get(shape);
  set_input(first.positions, chunk.rotations.data());
  set_residual(first, chunk, residual);
  compute(first);
  const std::vector<float> queries = copy_of(first.queries);
  const std::vector<float> values = copy_of(first.values);
  sequence.cache.record_peak();
  freeze_directions(sequence, layer, 1);
  const bool is_cut = evictor_.evict(sequence, layer, share);

  end_aligned_.set_rows(chunk.slices, layer);
  shape.part = LayerPart::kFromAttend;
  shape.is_observed = false;
  StepGraph& second = graphs_.get(shape);
  set_residual(second, chunk, residual);
  set_input(second.queries, queries.data());
  set_input(second.values, values.data());
  compute(second);
  ggml_backend_tensor_get(second.output, residual, 0, ggml_nbytes(second.output));
  return is_cut;
}

// residual [n_tokens, n_embd] (padded) is read, unless the layers start at 0, and overwritten, at least where that is wanted.
void Engine::run_layers(const Chunk& chunk, int first_layer, int n_layers, float* residual,
                        bool is_wanted) {
  if (device_) {
    device_->run_layers(chunk, first_layer, n_layers, residual, is_wanted);
    return;
  }
  step_.set_slices(chunk.slices);
  StepGraph& graph = graphs_.get({.first_layer = first_layer,
                                  .n_layers = n_layers,
                                  .n_tokens = static_cast<int>(chunk.tokens.size()),
                                  .has_logits = false,
                                  .compares_residual = compares_residual(chunk),
                                  .is_observed = is_observed(chunk),
                                  .attends_chunks = attends_chunks(chunk)});
  set_input(graph.positions, chunk.rotations.data());
  set_residual(graph, chunk, residual);
  compute(graph);
  ggml_backend_tensor_get(graph.output, residual, 0, ggml_nbytes(graph.output));
}

// What is done to the sequences of a chunk after each of its graphs.
void Engine::settle(const Chunk& chunk, int first_layer, int n_layers) {
  for (size_t i = 0; i < chunk.slices.size(); ++i) {
    const kernels::Slice& slice = chunk.slices[i];
    chunk.sequences[i]->cache.record_peak();
    freeze_directions(*chunk.sequences[i], first_layer, n_layers);
    drop_unseen_rows(*chunk.sequences[i], first_layer, n_layers,
                     slice.first_pos + slice.n_tokens - 1);
  }
}

// residual [n_rows, n_embd] -> logits [n_rows, n_vocab], always through graphs of the prompt's class.
void Engine::run_output(std::span<const float> residual, std::vector<float>& logits) {
  const auto n_embd = static_cast<size_t>(model_.hyper().n_embd);
  const auto n_vocab = static_cast<size_t>(model_.hyper().n_vocab);
  const size_t n_rows = residual.size() / n_embd;
  logits.resize(n_rows * n_vocab);
  std::vector<float> rows;
  for (size_t done = 0; done < n_rows;) {
    const size_t n = std::min(n_rows - done, static_cast<size_t>(kOutputRows));
    const int n_graph_rows = padded_rows(static_cast<int>(n));
    rows.assign(residual.data() + done * n_embd, residual.data() + (done + n) * n_embd);
    rows.resize(static_cast<size_t>(n_graph_rows) * n_embd, 0.0F);
    if (device_) {
      device_->run_output(rows, std::span(logits).subspan(done * n_vocab, n * n_vocab));
      done += n;
      continue;
    }
    StepGraph& graph = graphs_.get({.first_layer = model_.hyper().n_layers,
                                    .n_layers = 0,
                                    .n_tokens = n_graph_rows,
                                    .has_logits = true});
    set_input(graph.residual, rows.data());
    compute(graph);
    ggml_backend_tensor_get(graph.output, logits.data() + done * n_vocab, 0,
                            n * n_vocab * sizeof(float));
    done += n;
  }
}

std::vector<float> Engine::decode(std::span<const DecodeInput> inputs) {
  std::vector<StepInput> step;
  for (const DecodeInput& input : inputs) {
    step.push_back({.sequence = input.sequence, .tokens = {&input.token, 1}});
  }
  std::vector<float> logits;
  this->step(step, logits);
  return logits;
}

void Engine::step(std::span<const StepInput> inputs, std::vector<float>& logits) {
  check_distinct(inputs);
  for (const StepInput& input : inputs) {
    const auto n_tokens = static_cast<int>(input.tokens.size());
    WINNOW_CHECK(input.is_prompt ? n_tokens > 0 : n_tokens == 1);
    check_admissible(*input.sequence, {.n_tokens = n_tokens, .n_batch = n_tokens}, model_.hyper());
    check_place(*input.sequence);
    check_tokens(input.tokens, model_.hyper().n_vocab);
    check_suits(input.sequence->policy, model_);
  }
  if (inputs.empty()) {
    logits.clear();
    return;
  }
  Chunk& chunk = step_chunk_;
  chunk.clear();
  bool has_prompt = false;
  for (const StepInput& input : inputs) {
    Sequence& sequence = *input.sequence;
    watch(sequence);
    chunk.add(sequence, input.tokens, sequence.positions_fed, sequence.next_rotation(),
              input.is_prompt);
    has_prompt |= input.is_prompt;
    sequence.evicted_during_prompt |= input.is_prompt && sequence.cache.has_gaps();
    sequence.is_usable = false;  // until all layers agree again
  }
  if (has_prompt) {
    run_mixed(chunk, inputs, logits);
  } else {
    run_decode(chunk, logits);
  }
  const int n_layers = model_.hyper().n_layers;
  settle(chunk, 0, n_layers);
  for (const StepInput& input : inputs) {
    Sequence& sequence = *input.sequence;
    sequence.positions_fed += static_cast<int>(input.tokens.size());
    if (input.cut == Cut::kAlways ||
        (input.cut == Cut::kIfDue && is_due(sequence.policy, sequence.cache))) {
      sequence.evictions.count += evictor_.evict(sequence) ? 1 : 0;
    }
  }
  for (const StepInput& input : inputs) {
    input.sequence->is_usable = true;
  }
}

// Generated tokens alone: one graph up to the logits, of as many rows as there are tokens.
void Engine::run_decode(const Chunk& chunk, std::vector<float>& logits) {
  if (device_) {
    logits.resize(static_cast<size_t>(chunk.n_tokens) *
                  static_cast<size_t>(model_.hyper().n_vocab));
    device_->run_decode(chunk, logits);
    return;
  }
  step_.set_slices(chunk.slices);
  StepGraph& graph = graphs_.get({.first_layer = 0,
                                  .n_layers = model_.hyper().n_layers,
                                  .n_tokens = chunk.n_tokens,
                                  .has_logits = true,
                                  .attends_chunks = attends_chunks(chunk)});
  set_input(graph.positions, chunk.rotations.data());
  set_input(graph.tokens, chunk.tokens.data());
  compute(graph);
  logits.resize(static_cast<size_t>(chunk.n_tokens) * static_cast<size_t>(model_.hyper().n_vocab));
  ggml_backend_tensor_get(graph.output, logits.data(), 0, logits.size() * sizeof(float));
}

// Some prompt tokens among them: all are of the prompt's class, and the output matrix sees the wanted rows alone.
void Engine::run_mixed(Chunk& chunk, std::span<const StepInput> inputs,
                       std::vector<float>& logits) {
  const auto n_embd = static_cast<size_t>(model_.hyper().n_embd);
  chunk.pad();
  std::vector<float> residual(chunk.tokens.size() * n_embd);
  run_layers(chunk, 0, model_.hyper().n_layers, residual.data());
  std::vector<float> wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_prompt || inputs[i].wants_logits) {
      const auto last =
          static_cast<size_t>(chunk.slices[i].first_token + chunk.slices[i].n_tokens - 1);
      wanted.insert(wanted.end(), residual.data() + last * n_embd,
                    residual.data() + (last + 1) * n_embd);
    }
  }
  run_output(wanted, logits);
}

void Engine::compute(StepGraph& graph) {
  backend_.compute(graph.graph);
  step_.check_computed();
  peak_.graph_bytes = std::max(peak_.graph_bytes, graphs_.buffer_bytes());
  peak_.scratch_bytes =
      std::max(peak_.scratch_bytes, step_.scratch_bytes() + end_aligned_.scratch_bytes());
}

}  // namespace winnow::engine
