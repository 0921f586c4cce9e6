// A sequence that grows by prompts and answers: reads what is given, generates, goes on from there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/prompt.h"
#include "engine/sampling.h"
#include "engine/transcript.h"

namespace winnow::engine {

struct SavedSession;

struct SessionOptions {
  cache::RowType key_type = cache::RowType::kF16;
  cache::RowType value_type = cache::RowType::kF16;
  // Most positions that tokens are rotated to; 0: what the model was trained for. That is how many are fed, but where the
  // policy's positions are contiguous: how many rows a head holds.
  int n_ctx = 0;
  bool allow_beyond_context = false;
  EvictWhen evict = EvictWhen::kAfterPrompt;
  // Default: layer-major, but chunk-major where nothing or every chunk is evicted, or layers are compared.
  std::optional<PrefillOrder> order;
  EngineOptions engine;
  ChatFormat chat = {};
};

struct ReadOptions {
  WantedLogits logits = WantedLogits::kLast;  // what read() returns
  std::function<void(double)> progress = {};  // the fraction of the prompt that is read
  const std::atomic<bool>* cancel = nullptr;
};

struct GenerateOptions {
  int n_predict = -1;  // most generated tokens; -1: until the model ends or the context is full
  bool ignore_eos = false;
  SamplingOptions sampling;
};

struct GenerateCallbacks {
  std::function<void(const std::string&)> on_text = {};           // each token's, as it comes
  std::function<void(const std::vector<float>&)> on_logits = {};  // [n_vocab], once a token is fed
  const std::atomic<bool>* cancel = nullptr;
};

enum class StopReason { kEndOfText, kLength, kContext, kCancelled };
const char* stop_reason_name(StopReason reason);

struct Generation {
  std::string text;
  StopReason stop = StopReason::kLength;
  int n_generated = 0;  // tokens sampled, the one that ends the text included
  uint32_t seed = 0;
  double first_token_ms = 0;
  double decode_ms = 0;  // all tokens after the first
};

class Session {
 public:
  // Throws invalid_argument: a context beyond what the model was trained for, per-chunk eviction, or a
  // policy that compares layers, in layer-major order.
  Session(const model::Model& model, policy::Policy policy, const SessionOptions& options);

  // Goes on where a saved session was: policy, row types and chat format are the file's. Its rows stay in the file until
  // they are reserved. Throws the same, also where the context has no room for what the session has read.
  Session(const model::Model& model, SavedSession&& saved, const SessionOptions& options);
  ~Session();

  // What reading `prompt` next and generating up to `n_predict` tokens (-1: all there is room for) will take. Throws
  // invalid_argument: an empty prompt, one that the context has no room for, a budget that does not work out.
  Plan plan(const PromptTokens& prompt, int n_predict, WantedLogits logits = WantedLogits::kLast);
  // The same without a prompt.
  Plan plan_generation(int n_predict);

  // Reserves address space for heads of up to so many rows, and at least for those of a saved session, which it takes from
  // the file. Once, before anything is read; without it there is room for the whole context. `kept_rows`: that most heads hold
  // once they have been cut, if that is known. Throws resource_exhausted.
  void reserve(int max_rows, int kept_rows = 0);

  // Reads a prompt and cuts the cache to the budget. Budgets in percent refer to all documents read so far. Throws what
  // plan() and Engine::feed throw.
  std::vector<float> read(const PromptTokens& prompt, const ReadOptions& options);

  // Generates from where the last prompt or answer ended. A cancelled answer is no error. The last token may wait to be
  // fed until the session goes on; one that ends the text is never fed. Throws invalid_argument when nothing was read.
  Generation generate(const GenerateOptions& options, const GenerateCallbacks& callbacks);

  // What the model says after each of these tokens [tokens.size(), n_vocab], fed as if it had generated them. A prompt has been
  // read, and no token waits to be fed.
  std::vector<float> follow(std::span<const Token> tokens);

  // An independent copy that goes on from here, with an engine of its own. With a policy, its rows are cut to that one
  // at once. Throws what engine::fork throws.
  std::unique_ptr<Session> fork(const std::optional<policy::Policy>& policy = {}) const;
  // Goes back to the first n_positions positions. Before anything is generated, a prompt has to be read again, unless
  // no position was taken back. Throws what engine::trim throws.
  void trim(int n_positions);
  // The part of a prompt, given from the session's first position on, that is still to be read: what was read after the
  // two part is taken back. Throws invalid_argument where that is not possible any more (see trim).
  PromptTokens rejoin(const PromptTokens& whole);

  // Writes a file that load_session() reads (docs/cache-files.md); rows are reserved. Throws invalid_argument where
  // nothing was read or a step failed half-way, io.
  void save(const std::string& path) const;

  int n_ctx() const { return n_ctx_; }
  // The most tokens that can be generated after a prompt (may be empty), or after what was read.
  int most_generated(const PromptTokens& prompt) const;
  PrefillOrder order() const { return order_; }
  const policy::Policy& policy() const { return sequence_ ? sequence_->policy : policy_; }
  const cache::CacheShape& shape() const { return shape_; }  // max_rows is 0 until reserved
  const Transcript& transcript() const { return transcript_; }
  const ChatFormat& chat() const { return options_.chat; }
  // Exists once rows are reserved.
  const Sequence* sequence() const { return sequence_ ? &*sequence_ : nullptr; }
  Engine::Footprint peak_footprint() const { return engine_.peak_footprint(); }

 private:
  int n_positions() const { return static_cast<int>(transcript_.tokens.size()); }
  // What the next token is rotated to, once one that waits has been fed.
  int next_rotation() const;
  int n_fed() const { return n_positions() + (transcript_.pending ? 1 : 0); }
  // Positions that are left for tokens to be rotated to.
  int room() const { return n_ctx_ - next_rotation(); }
  // Behind the last position that reading a prompt rotates to.
  int rotation_end(const PromptTokens& prompt) const;
  policy::Policy& own_policy() { return sequence_ ? sequence_->policy : policy_; }
  // What is replayed once a prompt's document has been read; nothing under most policies.
  ReplaySize replay_size(const PromptTokens& prompt) const;
  void check_room(const PromptTokens& prompt) const;
  std::vector<ReplayText> replays() const;  // of all documents read
  // The positions that the largest part of these takes. Throws invalid_argument where the context has no room for them.
  int replay_room(std::span<const ReplayText> replays, const policy::Policy& policy) const;
  int n_cached(int layer, int kv_head) const;
  Held held() const;
  void resolve_budget(std::span<const ReadPrompt> read);
  Plan make_plan(PlanInput input, WantedLogits logits);
  Engine::Workload workload(const PlanInput& input, WantedLogits logits, int max_rows) const;
  Engine::Footprint footprint(const PlanInput& input, Engine::Workload work);
  std::vector<float> feed(const PromptTokens& part, const FeedOptions& options,
                          WantedLogits wanted);
  void decode(Token token);

  const model::Model& model_;
  policy::Policy policy_;  // moves into the sequence
  SessionOptions options_;
  PrefillOrder order_;
  int n_ctx_;
  Engine engine_;
  cache::CacheShape shape_;
  std::optional<Sequence> sequence_;
  std::unique_ptr<SavedSession> saved_;  // until its rows are in the sequence
  Transcript transcript_;
};

}  // namespace winnow::engine
