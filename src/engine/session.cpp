#include "engine/session.h"

#include <algorithm>
#include <array>
#include <climits>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/name_table.h"
#include "base/stopwatch.h"
#include "engine/admission.h"
#include "engine/device_runner.h"
#include "engine/session_file.h"

namespace winnow::engine {
namespace {

constexpr NameTable<StopReason, 4> kStopReasons{"stop reason",
                                                {{StopReason::kEndOfText, "end-of-text"},
                                                 {StopReason::kLength, "length"},
                                                 {StopReason::kContext, "context"},
                                                 {StopReason::kCancelled, "cancelled"}}};

int choose_context(const model::Model& model, const SessionOptions& options) {
  if (!options.allow_beyond_context) {
    check_context(model.hyper(), options.n_ctx);
  }
  return options.n_ctx > 0 ? options.n_ctx : model.hyper().n_ctx_scaled;
}

EngineOptions with_context(EngineOptions options, int n_ctx) {
  options.n_ctx = n_ctx;
  return options;
}

// The rows that a copy under `policy` holds.
size_t forked_bytes(const cache::Cache& cache, const policy::Policy& policy) {
  const cache::CacheShape& shape = cache.shape();
  int64_t rows = 0;
  std::vector<int> n_cut;  // of the heads that the policy cuts
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      const int n_cached = cache.n_cached(layer, kv_head);
      if (shape.swa_window(layer) > 0) {
        rows += n_cached;
      } else {
        n_cut.push_back(n_cached);
      }
    }
  }
  policy::Division division;
  policy.divide(n_cut, shape.n_kv_heads, division);
  rows = std::accumulate(division.rows.begin(), division.rows.end(), rows);
  return static_cast<size_t>(rows) * shape.row_bytes();
}

SessionOptions as_saved(SessionOptions options, const SavedSession& saved) {
  options.key_type = saved.rows.shape().key_type;
  options.value_type = saved.rows.shape().value_type;
  options.chat = saved.chat;
  return options;
}

bool is_set(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load();
}

// So many tokens are fed at most where positions are contiguous, and would not end: column mass counts so many queries.
constexpr int kMostFed = 1 << 24;

// The most rows of a head that policies cut, once cut: slack included, where only what is due is cut.
int most_rows(const policy::Policy& policy, const cache::CacheShape& shape, bool has_slack) {
  const int n_layers = shape.n_layers - shape.n_windowed_layers();
  const int64_t rows = has_slack ? policy.most_held_rows(n_layers, shape.n_kv_heads)
                                 : policy.most_rows(n_layers, shape.n_kv_heads);
  return n_layers > 0 ? static_cast<int>(std::min<int64_t>(rows, INT_MAX / 2)) : 0;
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  return kStopReasons.name(reason);
}

Session::Session(const model::Model& model, policy::Policy policy, const SessionOptions& options)
    : model_(model),
      policy_(std::move(policy)),
      options_(options),
      order_(options.order.value_or(default_prefill_order(policy_, options.evict))),
      n_ctx_(choose_context(model, options)),
      engine_(model, with_context(options.engine, n_ctx_)),
      shape_(cache_shape(model.hyper(), options.key_type, options.value_type, policy_, 0)) {
  check_order(order_, prompt_eviction(options.evict), policy_);
  check_suits(policy_, model);
  shape_.is_remote = options.engine.is_on_gpu;
  if (shape_.is_remote) {
    check_gathered_on_gpu(policy_);
  }
}

Session::Session(const model::Model& model, SavedSession&& saved, const SessionOptions& options)
    : Session(model, saved.policy, as_saved(options, saved)) {
  if (shape_.is_remote) {
    throw Error(ErrorCode::kUnsupported, "a saved cache goes on on the CPU only (-ngl 0)");
  }
  check_context_of(saved, model, n_ctx_);
  transcript_ = std::move(saved.transcript);
  saved_ = std::make_unique<SavedSession>(std::move(saved));
}

Session::~Session() = default;

int Session::next_rotation() const {
  if (!policy().counts_rows()) {
    return n_fed();
  }
  int next = 0;
  if (sequence_) {
    next = sequence_->next_rotation();
  } else if (saved_) {
    next = saved_->rows.next_contiguous();
  }
  return next + (transcript_.pending ? 1 : 0);
}

ReplaySize Session::replay_size(const PromptTokens& prompt) const {
  if (!policy().needs().replay.is_wanted()) {
    return {};
  }
  const bool is_document_alone =
      options_.evict == EvictWhen::kBeforeQuestion && !prompt.document.empty();
  const ReplayText text =
      replay_text(model_, options_.chat, is_document_alone ? prompt.up_to_question() : prompt, 0);
  return engine::replay_size(text.request, static_cast<int>(text.document.size()),
                             policy().needs().replay.chunk);
}

int Session::rotation_end(const PromptTokens& prompt) const {
  const int n_before_replay =
      options_.evict == EvictWhen::kBeforeQuestion ? prompt.up_to_question().size() : prompt.size();
  const int whole =
      next_rotation() + std::max(prompt.size(), n_before_replay + replay_size(prompt).n_most);
  if (!policy().counts_rows() || options_.evict == EvictWhen::kAfterPrompt) {
    return whole;
  }
  policy::Policy policy = this->policy();  // as it will be resolved
  std::vector<ReadPrompt> prompts = transcript_.prompts;
  const bool is_cut_per_chunk = options_.evict == EvictWhen::kPerChunk;
  const PromptTokens first = is_cut_per_chunk ? prompt : prompt.up_to_question();
  prompts.push_back(first.at(n_fed()));
  policy.resolve(budget_context(prompts, policy, shape_));
  const int n_stay = most_rows(policy, shape_, is_cut_per_chunk);
  if (is_cut_per_chunk) {
    return std::min(whole, std::max(next_rotation(), n_stay) + options_.engine.n_batch);
  }
  const int after_first = next_rotation() + first.size();
  return std::max(after_first, std::min(after_first, n_stay) + prompt.size() - first.size());
}

int Session::most_generated(const PromptTokens& prompt) const {
  if (!policy().counts_rows()) {
    return room() - prompt.size() + 1;  // the last token is not fed, so it needs no room
  }
  // Where no head can grow beyond the context, generating never ends.
  const bool is_endless = policy().is_resolved() && most_rows(policy(), shape_, true) < n_ctx_;
  return is_endless ? std::max(kMostFed - n_fed() - prompt.size(), 0) + 1 : n_ctx_ + 1;
}

void Session::check_room(const PromptTokens& prompt) const {
  if (prompt.size() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  if (policy().is_unlimited() && !prompt.pins.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "there is nothing to protect text or tokens from: policy '" + policy().spec() +
                    "' keeps every row; give a --budget");
  }
  if (policy().counts_rows() && prompt.size() > kMostFed - n_fed()) {
    throw Error(ErrorCode::kInvalidArgument, "the prompt has " + std::to_string(prompt.size()) +
                                                 " tokens, and " + std::to_string(n_fed()) +
                                                 " are fed; " + std::to_string(kMostFed) +
                                                 " are the most");
  }
  const int needed = rotation_end(prompt);
  if (needed <= n_ctx_) {
    return;
  }
  const int trained = model_.hyper().n_ctx_scaled;
  const std::string fed =
      room() == n_ctx_ ? "" : ", of which " + std::to_string(next_rotation()) + " are taken";
  const std::string advice =
      needed > trained && !options_.allow_beyond_context
          ? "--allow-beyond-context permits it"
          : "a context (-c) of " +
                (needed > trained ? std::to_string(needed) : "up to " + std::to_string(trained)) +
                " has room";
  const int n_replayed = replay_size(prompt).n_most;
  const std::string replayed =
      n_replayed == 0 ? "" : " (and " + std::to_string(n_replayed) + " to replay it)";
  throw Error(ErrorCode::kInvalidArgument, "the prompt has " + std::to_string(prompt.size()) +
                                               " tokens" + replayed + ", the context " +
                                               std::to_string(n_ctx_) + fed + "; " + advice);
}

int Session::n_cached(int layer, int kv_head) const {
  return sequence_ ? sequence_->cache.n_cached(layer, kv_head)
                   : saved_->rows.n_cached(layer, kv_head);
}

Held Session::held() const {
  Held held{.n_positions = n_positions(), .prompts = transcript_.prompts};
  for (int layer = 0; (sequence_ || saved_) && layer < shape_.n_layers; ++layer) {
    const bool is_windowed = shape_.swa_window(layer) > 0;
    int& longest = is_windowed ? held.windowed_rows : held.longest_head;
    int64_t rows = 0;
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      const int n_rows = n_cached(layer, kv_head);
      longest = std::max(longest, n_rows);
      rows += n_rows;
    }
    if (!is_windowed) {
      held.layer_rows.push_back(rows);
    }
  }
  return held;
}

// What a budget comes to that depends on the prompts read.
void Session::resolve_budget(std::span<const ReadPrompt> read) {
  if (!read.empty()) {
    own_policy().resolve(budget_context(read, own_policy(), shape_));
  }
}

Plan Session::plan(const PromptTokens& prompt, int n_predict, WantedLogits logits) {
  check_room(prompt);
  const int most = most_generated(prompt);
  return make_plan({.prompt = prompt.at(n_fed()),
                    .held = held(),
                    .n_predict = n_predict < 0 ? most : std::min(n_predict, most),
                    .evict = options_.evict,
                    .order = order_,
                    .n_batch = options_.engine.n_batch,
                    .replay = replay_size(prompt)},
                   logits);
}

Plan Session::plan_generation(int n_predict) {
  const int most = most_generated({});
  return make_plan({.held = held(),
                    .n_predict = n_predict < 0 ? most : std::min(n_predict, most),
                    .evict = EvictWhen::kAfterPrompt,
                    .order = PrefillOrder::kChunkMajor,
                    .n_batch = options_.engine.n_batch},
                   WantedLogits::kNone);
}

Plan Session::make_plan(PlanInput input, WantedLogits logits) {
  Plan plan = engine::make_plan(input, shape_, own_policy());
  if (own_policy().counts_rows()) {
    plan.max_rows = std::min(plan.max_rows, n_ctx_ + 1);
  }
  resolve_budget(transcript_.prompts);  // until the prompt is read, it is what it was
  if (saved_) {
    plan.kv_held_bytes = 0;  // nothing is taken yet
  }
  cache::CacheShape shape = shape_;
  shape.max_rows = std::max(shape.max_rows, plan.max_rows);
  shape.kept_rows = std::max(shape.kept_rows, plan.kept_rows);
  plan.policy_bytes = policy_bytes(model_.hyper(), shape, own_policy());
  if (sequence_) {
    plan.policy_held_bytes = sequence_->policy_bytes();
  } else if (saved_) {
    plan.policy_held_bytes = plan.policy_bytes;
  }
  const Engine::Workload work = workload(input, logits, plan.max_rows);
  plan.footprint = footprint(input, work);
  plan.gpu_bytes = engine_.gpu_bytes(work, shape, own_policy().needs());
  return plan;
}

Engine::Workload Session::workload(const PlanInput& input, WantedLogits logits,
                                   int max_rows) const {
  return {.n_held = input.held.n_positions,
          .n_prompt = input.prompt.end - input.prompt.begin,
          .n_decoded = std::max(input.n_predict - 1, 0),
          .order = input.order,
          .has_all_logits = logits == WantedLogits::kAll,
          .n_mass_rows = shape_.stores_mass ? cache::Cache::most_slots(max_rows) : 0,
          .needs_turns = needs_turns(policy()),
          .is_compared = policy().needs().residual_similarity,
          .has_chunks = policy().needs().chunk_attention.is_wanted(),
          .n_rows = std::max(max_rows, shape_.max_rows),
          .is_contiguous = policy().is_contiguous(),
          .is_legacy = input.evict == EvictWhen::kLegacyOrder,
          .rotation_end = sequence_ ? sequence_->cache.rotation_end() : 0,
          .n_replayed = input.replay.n_most,
          .replay_bytes = replay_bytes(model_.hyper(), shape_, policy(), input.replay,
                                       options_.engine.n_threads)};
}

// With before-question eviction the prompt is fed in two parts, and only the scratch for attention sees both.
Engine::Footprint Session::footprint(const PlanInput& input, Engine::Workload work) {
  Engine::Footprint whole = engine_.footprint(work);
  if (input.evict == EvictWhen::kBeforeQuestion) {
    work.n_prompt = input.prompt.document_end - input.prompt.begin;
    const Engine::Footprint first = engine_.footprint(work);
    work.n_prompt = input.prompt.end - input.prompt.document_end;
    const Engine::Footprint second = engine_.footprint(work);
    whole.graph_bytes = std::max(first.graph_bytes, second.graph_bytes);
    whole.residual_bytes = std::max(first.residual_bytes, second.residual_bytes);
  }
  return whole;
}

void Session::reserve(int max_rows, int kept_rows) {
  WINNOW_CHECK(!sequence_);
  shape_.kept_rows = kept_rows;
  shape_.max_rows = saved_ ? std::max(max_rows, saved_->rows.shape().max_rows) : max_rows;
  std::shared_ptr<cache::RemoteRows> rows = engine_.make_rows(shape_);
  sequence_.emplace(shape_, std::move(policy_), std::move(rows));
  if (saved_) {
    saved_->rows.restore(sequence_->cache);
    sequence_->positions_fed = n_positions();
    sequence_->evicted_during_prompt = saved_->evicted_during_prompt;
    sequence_->evictions = saved_->evictions;
    sequence_->queries = std::move(saved_->queries);
    sequence_->moments = std::move(saved_->moments);
    sequence_->similarity = std::move(saved_->similarity);
    sequence_->key_directions = std::move(saved_->key_directions);
    saved_.reset();
  }
}

std::vector<float> Session::read(const PromptTokens& prompt, const ReadOptions& options) {
  check_room(prompt);
  check_tokens(prompt.all(), model_.hyper().n_vocab);
  if (!sequence_) {
    reserve(n_ctx_);
  }
  if (transcript_.pending) {
    decode(*transcript_.pending);
  }
  const FeedOptions feed_options{.order = order_,
                                 .eviction = prompt_eviction(options_.evict),
                                 .progress = options.progress,
                                 .cancel = options.cancel};
  const bool is_all_wanted = options.logits == WantedLogits::kAll;
  const WantedLogits wanted = is_all_wanted ? WantedLogits::kAll : WantedLogits::kLast;
  const PromptTokens first = prompt.up_to_question();
  const PromptTokens second = prompt.from_question();
  std::vector<float> logits;
  if (options_.evict == EvictWhen::kBeforeQuestion && first.size() > 0 && second.size() > 0) {
    logits = feed(first, feed_options, is_all_wanted ? WantedLogits::kAll : WantedLogits::kNone);
    const std::vector<float> rest = feed(second, feed_options, wanted);
    logits.insert(logits.end(), rest.begin(), rest.end());
  } else {
    logits = feed(prompt, feed_options, wanted);
  }
  if (options.logits == WantedLogits::kNone) {
    logits.clear();
  }
  return logits;
}

std::vector<float> Session::feed(const PromptTokens& part, const FeedOptions& options,
                                 WantedLogits wanted) {
  const std::vector<Token> tokens = part.all();
  const ReplayText replay = policy().needs().replay.is_wanted()
                                ? replay_text(model_, options_.chat, part, n_positions())
                                : ReplayText{};
  const Feed feed{.sequence = &*sequence_, .tokens = tokens, .logits = wanted, .replay = &replay};
  // A budget in percent covers the documents; the rows of what stands around them come on top as they are read.
  transcript_.prompts.push_back(part.at(n_positions()));
  std::vector<float> logits;
  try {
    resolve_budget(transcript_.prompts);
    logits = std::move(engine_.feed({&feed, 1}, options)[0]);
  } catch (...) {
    transcript_.prompts.pop_back();
    resolve_budget(transcript_.prompts);
    throw;
  }
  transcript_.tokens.insert(transcript_.tokens.end(), tokens.begin(), tokens.end());
  const auto n_last = static_cast<std::ptrdiff_t>(
      std::min(logits.size(), static_cast<size_t>(model_.hyper().n_vocab)));
  transcript_.logits.assign(logits.end() - n_last, logits.end());
  return logits;
}

void Session::decode(Token token) {
  const StepInput input{.sequence = &*sequence_, .tokens = {&token, 1}};
  engine_.step({&input, 1}, transcript_.logits);
  transcript_.tokens.push_back(token);
  transcript_.pending.reset();
}

std::vector<float> Session::follow(std::span<const Token> tokens) {
  WINNOW_CHECK(sequence_ && !transcript_.pending);
  std::vector<float> logits;
  for (const Token token : tokens) {
    decode(token);
    logits.insert(logits.end(), transcript_.logits.begin(), transcript_.logits.end());
  }
  return logits;
}

Generation Session::generate(const GenerateOptions& options, const GenerateCallbacks& callbacks) {
  if (transcript_.logits.empty() || (sequence_ && !sequence_->is_usable)) {
    throw Error(ErrorCode::kInvalidArgument,
                "there is nothing to generate from; a prompt has to be read first");
  }
  if (!sequence_) {
    reserve(n_ctx_);
  }
  Sampler sampler(options.sampling);
  Generation result;
  result.seed = sampler.seed();
  const int limit = options.n_predict < 0 ? INT32_MAX : options.n_predict;
  // A decoded token allocates nothing.
  transcript_.reserve_more(std::min({limit, most_generated({}), n_ctx_ + 1}));
  const Stopwatch stopwatch;
  while (true) {
    if (result.n_generated == limit) {
      result.stop = StopReason::kLength;
      break;
    }
    // A token that waits has been given the last position: none is left for the next.
    if (transcript_.pending &&
        (next_rotation() > n_ctx_ || (policy().counts_rows() && n_fed() > kMostFed))) {
      result.stop = StopReason::kContext;
      break;
    }
    if (transcript_.pending) {
      decode(*transcript_.pending);
      if (callbacks.on_logits) {
        callbacks.on_logits(transcript_.logits);
      }
    }
    if (is_set(callbacks.cancel)) {
      result.stop = StopReason::kCancelled;
      break;
    }
    const Token token = sampler.sample(transcript_.logits);
    ++result.n_generated;
    if (result.n_generated == 1) {
      result.first_token_ms = stopwatch.ms();
    }
    if (model_.vocabulary().ends_generation(token) && !options.ignore_eos) {
      result.stop = StopReason::kEndOfText;
      break;
    }
    transcript_.pending = token;
    const std::string piece = model_.vocabulary().piece(token);
    result.text += piece;
    if (callbacks.on_text) {
      callbacks.on_text(piece);
    }
  }
  result.decode_ms = result.n_generated > 1 ? stopwatch.ms() - result.first_token_ms : 0;
  return result;
}

std::vector<ReplayText> Session::replays() const {
  const ReplayRequest request = replay_request(model_, options_.chat, transcript_.is_turn_open());
  std::vector<ReplayText> replays;
  for (const ReadPrompt& prompt : transcript_.prompts) {
    const auto first = transcript_.tokens.begin();
    replays.push_back({.request = request,
                       .document_begin = prompt.document_begin,
                       .document = {first + prompt.document_begin, first + prompt.document_end}});
  }
  return replays;
}

int Session::replay_room(std::span<const ReplayText> replays, const policy::Policy& policy) const {
  int n_most = 0;
  for (const ReplayText& text : replays) {
    const auto n_document = static_cast<int>(text.document.size());
    n_most = std::max(
        n_most, engine::replay_size(text.request, n_document, policy.needs().replay.chunk).n_most);
  }
  if (n_positions() + n_most > n_ctx_) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + policy.spec() + "' takes " + std::to_string(n_most) +
                    " positions to replay what was read, of which " +
                    std::to_string(n_ctx_ - n_positions()) + " are left in the context");
  }
  return n_most;
}

std::unique_ptr<Session> Session::fork(const std::optional<policy::Policy>& policy) const {
  SessionOptions options = options_;
  options.n_ctx = n_ctx_;
  auto copy = std::make_unique<Session>(model_, policy ? *policy : this->policy(), options);
  WINNOW_CHECK(!saved_);
  if (!sequence_) {
    return copy;
  }
  if (!sequence_->policy.is_resolved()) {  // nothing was read
    copy->reserve(shape_.max_rows);
    return copy;
  }
  if (policy) {
    copy->policy_.resolve(budget_context(transcript_.prompts, copy->policy_, copy->shape_));
  }
  ForkOptions fork_options;
  size_t peak_bytes = forked_bytes(sequence_->cache, copy->policy_);
  if (policy && policy->needs().replay.is_wanted() && !has_replay_scores(*sequence_, *policy)) {
    fork_options.replays = replays();
    peak_bytes = shape_.full_bytes(n_positions() + replay_room(fork_options.replays, *policy));
  }
  check_fits({.kv_peak_bytes = peak_bytes}, shape_.reserved_bytes(), options.engine.n_threads);
  if (policy) {
    fork_options.policy = std::move(copy->policy_);
  }
  copy->sequence_.emplace(copy->engine_.fork(*sequence_, std::move(fork_options)));
  copy->shape_ = copy->sequence_->cache.shape();
  copy->transcript_ = transcript_;
  return copy;
}

void Session::trim(int n_positions) {
  if (!sequence_) {
    reserve(n_ctx_);
  }
  engine::trim(*sequence_, n_positions);
  transcript_.trim(n_positions);
  resolve_budget(transcript_.prompts);
}

PromptTokens Session::rejoin(const PromptTokens& whole) {
  const std::vector<Token> tokens = whole.all();
  const auto parting = std::ranges::mismatch(tokens, transcript_.tokens).in1;
  auto n_common = static_cast<int>(parting - tokens.begin());
  const int n_read = n_positions();
  // Some token must be read where the logits after the prompt are not there any more.
  if (n_common == whole.size() && (n_common < n_read || transcript_.logits.empty())) {
    n_common = std::max(n_common - 1, 0);
  }
  if (n_common < n_read || transcript_.pending) {
    try {
      trim(n_common);
    } catch (const Error& error) {
      throw Error(error.code(), "of the " + std::to_string(n_read) +
                                    " positions that were read, the prompt has only the first " +
                                    std::to_string(n_common) + ": " + error.what());
    }
  }
  return whole.from(n_common);
}

}  // namespace winnow::engine
