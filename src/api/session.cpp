#include "winnow/session.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/text.h"
#include "base/threads.h"
#include "engine/session.h"
#include "engine/session_file.h"

namespace winnow {
namespace {

std::string text_of(int value) {
  return std::to_string(value);
}
std::string text_of(int64_t value) {
  return std::to_string(value);
}
std::string text_of(float value) {
  return number_text(value);
}

template <typename Number>
void check_range(Number value, const char* name, Number low, Number high) {
  if (!(value >= low && value <= high)) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + " is " + text_of(value) +
                                                 "; allowed are " + text_of(low) + " to " +
                                                 text_of(high));
  }
}

engine::SessionOptions engine_options(const SessionOptions& options) {
  check_range(options.n_ctx, "n_ctx", 0, 1 << 28);
  check_range(options.n_batch, "n_batch", 1, 1 << 20);
  return {
      .key_type = cache::parse_row_type(options.key_type),
      .value_type = cache::parse_row_type(options.value_type),
      .n_ctx = options.n_ctx,
      .allow_beyond_context = options.allow_beyond_context,
      .evict = engine::parse_evict_when(options.evict),
      .order = engine::parse_prefill_order(options.prefill),
      .engine = {.n_threads = resolve_threads(options.n_threads), .n_batch = options.n_batch},
      .chat = {.has_template = options.has_chat_template, .chat_template = options.chat_template}};
}

engine::GenerateOptions engine_options(const GenerateOptions& options) {
  check_range(options.n_predict, "n_predict", -1, INT_MAX);
  check_range(options.seed, "seed", int64_t{-1}, int64_t{UINT32_MAX});
  engine::SamplingOptions sampling{.temperature = options.temperature,
                                   .top_k = options.top_k,
                                   .top_p = options.top_p,
                                   .min_p = options.min_p,
                                   .seed = options.seed};
  const auto check = [](auto value, const char* name, auto low, auto high, const char* /*help*/) {
    check_range(value, name, low, high);
  };
  sampling.visit(check);
  return {.n_predict = options.n_predict, .ignore_eos = options.ignore_eos, .sampling = sampling};
}

// Address space that rows for the whole context reserve.
size_t cache_bytes(const engine::Session& session) {
  cache::CacheShape shape = session.shape();
  shape.max_rows = session.n_ctx();
  return shape.reserved_bytes();
}

StopReason public_reason(engine::StopReason reason) {
  switch (reason) {
    case engine::StopReason::kEndOfText:
      return StopReason::kEndOfText;
    case engine::StopReason::kLength:
      return StopReason::kLength;
    case engine::StopReason::kContext:
      return StopReason::kContext;
    case engine::StopReason::kCancelled:
      break;
  }
  return StopReason::kCancelled;
}

}  // namespace

struct Session::Impl {
  std::shared_ptr<const model::Model> model;  // outlives the session on it
  SessionOptions options;
  std::unique_ptr<engine::Session> session;
  bool is_changing = false;  // while a Change lives

  // What changes a session is refused from its own callbacks.
  class Change {
   public:
    explicit Change(Impl& impl) : is_changing_(impl.is_changing) {
      if (is_changing_) {
        throw Error(ErrorCode::kInvalidArgument,
                    "the session is being fed or generates; its callbacks may not change it");
      }
      is_changing_ = true;
    }
    ~Change() { is_changing_ = false; }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    bool& is_changing_;
  };

  const engine::Sequence& sequence() const { return *session->sequence(); }
  int n_threads() const { return resolve_threads(options.n_threads); }

  engine::PromptText prompt_text(const Turn& turn) const {
    engine::DocumentPins pins = engine::parse_pins(turn.protect_text, turn.protect_tokens);
    return {.system = turn.system,
            .document = turn.document,
            .question = turn.question,
            .has_chat_template = session->chat().has_template,
            .chat_template = session->chat().chat_template,
            .is_first = sequence().positions_fed == 0,
            .pins = std::move(pins),
            .roles = engine::RoleSource(turn.roles)};
  }

  void feed(const engine::PromptTokens& prompt, const FeedOptions& feed_options) {
    const Change change(*this);
    engine::check_fits(session->plan(prompt, 0), 0, n_threads());
    session->read(prompt, {.logits = engine::WantedLogits::kNone,
                           .progress = feed_options.progress,
                           .cancel = feed_options.cancel});
  }
};

Session::Session(const Model& model, const Policy& policy, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(Impl{.model = model.impl_, .options = options, .session = {}})) {
  impl_->session = std::make_unique<engine::Session>(
      *impl_->model, policy::Policy::parse(policy.spec()), engine_options(options));
  impl_->session->reserve(impl_->session->n_ctx());
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
Session::Session(Session&& other) noexcept = default;
Session& Session::operator=(Session&& other) noexcept = default;

void Session::feed_text(std::string_view text, const FeedOptions& options) {
  impl_->feed(engine::tokenize_text(*impl_->model, text, impl_->sequence().positions_fed == 0),
              options);
}

void Session::feed_tokens(std::span<const Token> tokens, const FeedOptions& options) {
  impl_->feed({.document = {tokens.begin(), tokens.end()}}, options);
}

void Session::feed_turn(const Turn& turn, const FeedOptions& options) {
  impl_->feed(engine::tokenize_prompt(*impl_->model, impl_->prompt_text(turn)), options);
}

void Session::feed_document(const std::string& document, const FeedOptions& options) {
  feed_document(Turn{.document = document}, options);
}

void Session::feed_document(const Turn& turn, const FeedOptions& options) {
  if (turn.question) {
    throw Error(ErrorCode::kInvalidArgument,
                "a document is fed without its question; feed_question() takes that later");
  }
  impl_->feed(engine::tokenize_document(*impl_->model, impl_->prompt_text(turn)), options);
}

void Session::feed_question(const std::string& question, const FeedOptions& options) {
  if (impl_->sequence().positions_fed == 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "a question goes on from a document, and nothing was fed; feed_turn takes a question "
        "alone");
  }
  const Turn turn{.question = question};
  impl_->feed(engine::tokenize_question(*impl_->model, impl_->prompt_text(turn)), options);
}

Generation Session::generate(const GenerateOptions& options) {
  const Impl::Change change(*impl_);
  const engine::GenerateOptions generate = engine_options(options);
  // How long an answer of open length gets is not known.
  engine::check_fits(impl_->session->plan_generation(std::max(options.n_predict, 0)), 0,
                     impl_->n_threads());
  engine::Generation result =
      impl_->session->generate(generate, {.on_text = options.on_text, .cancel = options.cancel});
  return {.text = std::move(result.text),
          .stop = public_reason(result.stop),
          .n_generated = result.n_generated,
          .seed = result.seed,
          .first_token_ms = result.first_token_ms,
          .decode_ms = result.decode_ms};
}

void Session::save(const std::string& path) const {
  impl_->session->save(path);
}

Session Session::load(const Model& model, const std::string& path, const SessionOptions& options) {
  auto session = std::make_unique<engine::Session>(
      *model.impl_, engine::load_session(path, *model.impl_), engine_options(options));
  engine::check_fits(session->plan_generation(0), cache_bytes(*session),
                     resolve_threads(options.n_threads));
  session->reserve(session->n_ctx());
  return Session(std::make_unique<Impl>(
      Impl{.model = model.impl_, .options = options, .session = std::move(session)}));
}

Session Session::fork() const {
  return Session(std::make_unique<Impl>(
      Impl{.model = impl_->model, .options = impl_->options, .session = impl_->session->fork()}));
}

Session Session::fork(const Policy& policy) const {
  return Session(std::make_unique<Impl>(
      Impl{.model = impl_->model,
           .options = impl_->options,
           .session = impl_->session->fork(policy::Policy::parse(policy.spec()))}));
}

void Session::trim(int n_positions) {
  const Impl::Change change(*impl_);
  impl_->session->trim(n_positions);
}

int Session::n_ctx() const {
  return impl_->session->n_ctx();
}

const std::string& Session::policy() const {
  return impl_->session->policy().spec();
}

std::optional<int> Session::budget_rows() const {
  const policy::Policy& policy = impl_->session->policy();
  return policy.is_unlimited() || !policy.is_resolved() ? std::nullopt
                                                        : std::optional(policy.budget_rows());
}

Statistics Session::statistics() const {
  const engine::Sequence& sequence = impl_->sequence();
  const cache::Cache& cache = sequence.cache;
  const cache::Cache::AppendCounts counts = cache.append_counts();
  Statistics statistics{.positions_fed = sequence.positions_fed,
                        .kept_rows = {},
                        .bytes_now = cache.now_bytes(),
                        .bytes_peak = cache.peak_bytes(),
                        .bytes_full = cache.shape().full_bytes(sequence.positions_fed),
                        .bytes_committed = cache.committed_bytes(),
                        .compute_bytes = impl_->session->peak_footprint().total_bytes(),
                        .policy_bytes = sequence.policy_bytes(),
                        .rows_evicted = cache.rows_evicted(),
                        .n_evictions = sequence.evictions.count,
                        .evictions_ms = sequence.evictions.ms,
                        .evicted_during_prompt = sequence.evicted_during_prompt,
                        .values_saturated = counts.saturated,
                        .values_not_finite = counts.nonfinite_keys + counts.nonfinite_values};
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    std::vector<int>& heads = statistics.kept_rows.emplace_back();
    for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
      heads.push_back(cache.n_cached(layer, kv_head));
    }
  }
  return statistics;
}

std::vector<int> Session::kept_positions(int layer, int kv_head) const {
  const cache::Cache& cache = impl_->sequence().cache;
  check_range(layer, "layer", 0, cache.shape().n_layers - 1);
  check_range(kv_head, "kv_head", 0, cache.shape().n_kv_heads - 1);
  return cache.positions(layer, kv_head);
}

}  // namespace winnow
