// A sequence of tokens, its cache inside a budget, and what is generated after it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/error.h"
#include "winnow/model.h"
#include "winnow/policy.h"

namespace winnow {

// Names and meanings are those of `winnow run`'s flags (docs/cli.md).
struct SessionOptions {
  std::string key_type = "f16";  // of cached rows: "f32", "f16", "bf16"
  std::string value_type = "f16";
  int n_ctx = 0;  // most positions, whatever is kept of them; 0: what the model was trained for
  bool allow_beyond_context = false;  // permits a larger n_ctx than that
  int n_batch = 512;                  // most prompt tokens computed at once
  int n_threads = -1;                 // 1 to 512; -1: as many as the machine reports
  // When a prompt is cut to the budget: "after-prompt", "before-question", "per-chunk", or, to reproduce the results of
  // programs that evict before they attend, "legacy-order" (docs/policies.md).
  std::string evict = "after-prompt";
  std::string prefill = "auto";    // "layer-major", "chunk-major", or "auto" for what fits `evict`
  bool has_chat_template = true;   // false: turns are fed without one
  std::string chat_template = {};  // a name ("chatml") or a template's text; empty: the model's own
};

// A user's turn: a document, a blank line, a question, inside the chat template. One of the two may be absent.
struct Turn {
  std::optional<std::string> document = {};
  std::optional<std::string> question = {};
  std::optional<std::string> system = {};  // the system message, before a first turn
  // What stays of the document whatever it is worth, as run's --protect-text and --protect-tokens say it.
  std::vector<std::string> protect_text = {};
  std::vector<std::string> protect_tokens = {};
  // What the document's tokens are there for, for policies with roles: its format or probe:FILE, as run's --roles.
  std::string roles = "auto";
};

struct FeedOptions {
  std::function<void(double)> progress = {};  // called now and then with the fraction that is read
  const std::atomic<bool>* cancel = nullptr;  // looked at between chunks: true ends the feed
};

struct GenerateOptions {
  int n_predict = -1;       // most tokens; -1: until the model ends or the context is full
  bool ignore_eos = false;  // go on after the end-of-text token
  // At most 100; 0: always the likeliest token, the lowest id among equals.
  float temperature = 0.8F;
  int top_k = 40;          // the k likeliest tokens; 0: all
  float top_p = 0.95F;     // the likeliest tokens that make up this probability; 1: all
  float min_p = 0.05F;     // none less likely than this share of the likeliest; 0: none is dropped
  std::int64_t seed = -1;  // 0 to 2^32 - 1; -1: a random one
  // Called with every token's bytes as it comes. A character may be split over two calls.
  std::function<void(const std::string&)> on_text = {};
  const std::atomic<bool>* cancel = nullptr;  // looked at before every token: true ends the answer
};

enum class StopReason {
  kEndOfText,  // the model ended its text
  kLength,     // n_predict tokens were generated
  kContext,    // no position was left
  kCancelled,
};

struct Generation {
  std::string text;
  StopReason stop = StopReason::kLength;
  int n_generated = 0;        // tokens, the one that ends the text included
  std::uint32_t seed = 0;     // as resolved
  double first_token_ms = 0;  // until the first token was chosen
  double decode_ms = 0;       // all tokens after the first
};

// Bytes are of rows (keys, values, positions and, where the method stores them, scores), unless they say otherwise.
struct Statistics {
  int positions_fed = 0;                    // tokens the model has read
  std::vector<std::vector<int>> kept_rows;  // [n_layers][n_kv_heads]
  std::size_t bytes_now = 0;
  std::size_t bytes_peak = 0;          // most at the end of any step, before it was cut
  std::size_t bytes_full = 0;          // what all positions fed would take
  std::size_t bytes_committed = 0;     // memory pages of rows, and of a few that are gone
  std::size_t compute_bytes = 0;       // at the peak: compute buffer, scratch, residual stream
  std::size_t policy_bytes = 0;        // what the policy remembers of queries, beside the rows
  std::int64_t rows_evicted = 0;       // of all layers and heads
  std::int64_t n_evictions = 0;        // occasions: a prompt, a chunk of it, a generated token
  double evictions_ms = 0;             // spent on them: scoring, selecting, moving
  bool evicted_during_prompt = false;  // some prompt token attended to rows that were cut already
  std::int64_t values_saturated = 0;   // elements beyond the row type, stored as its largest value
  std::int64_t values_not_finite = 0;
};

// One thread at a time may use a session; several sessions, of one model or of several, are independent, and each
// computes with n_threads threads of its own. Callbacks may look at the session they come from; feeding it, generating
// and trimming are refused there (invalid_argument), and it must stay where it is.
//
// A feed that throws cancelled, or whose callback throws, leaves layers that disagree: the session refuses all but trim()
// to a length before it, statistics(), and destruction. Any other error changes nothing. A session that was moved from
// may be destroyed or assigned to, and no more.
class Session {
 public:
  // Reserves address space for n_ctx rows in every head; memory is taken by rows as they come and given back as they go.
  // Throws invalid_argument (options, a context beyond what the model was trained for), resource_exhausted.
  Session(const Model& model, const Policy& policy, const SessionOptions& options = {});
  ~Session();
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;

  // All feeds go on after what is there, and cut the cache to the budget when they have been read. A budget in percent
  // refers to all documents fed so far; texts and tokens count as documents, questions and the template come on top.
  // All throw invalid_argument (nothing to feed, no room left in the context, a budget that comes to no row),
  // resource_exhausted (before anything is touched), or cancelled.

  // Text as it is; a beginning-of-text token comes first where the model wants one and nothing was fed.
  // Throws bad_data for text that is not UTF-8.
  void feed_text(std::string_view text, const FeedOptions& options = {});
  // Tokens and nothing else. Throws invalid_argument for a token that is not in the vocabulary.
  void feed_tokens(std::span<const Token> tokens, const FeedOptions& options = {});
  // A whole turn, up to the start of the answer; after an answer, it ends that first. With evict "before-question", the
  // document is cut before the question is read. Throws unsupported for a template libllama does not know, bad_data.
  void feed_turn(const Turn& turn, const FeedOptions& options = {});
  // The same in two: the turn's document, which is cut to the budget, and later the question and the turn's end.
  // Together with fork(), one document answers many questions. A question with nothing before it is refused.
  void feed_document(const std::string& document, const FeedOptions& options = {});
  void feed_document(const Turn& turn, const FeedOptions& options = {});  // which has no question
  void feed_question(const std::string& question, const FeedOptions& options = {});

  // Goes on from the last feed or the last answer. A cancelled answer is no error: the next one continues it. If on_text
  // throws, so does generate(), and the session is as after an answer that ends there. Throws invalid_argument (options,
  // nothing fed), resource_exhausted, bad_data when the model's logits are not numbers.
  Generation generate(const GenerateOptions& options = {});

  // Writes the session to a file (docs/cache-files.md), with the rows that it holds. Throws invalid_argument where nothing
  // was fed or a feed was cancelled, io; what was at `path` is then as it was.
  void save(const std::string& path) const;
  // A session that goes on from such a file, to the bit where weights are expanded alike. Policy, row types and chat
  // template are the file's, all else is the options'. Its peak begins with what it holds. Throws not_found, io, bad_data (a
  // damaged file), unsupported (another version, an unknown policy), invalid_argument (another model, a context with too
  // little room), resource_exhausted.
  static Session load(const Model& model, const std::string& path,
                      const SessionOptions& options = {});

  // An independent session that goes on from here. Its peak begins with what it holds. Throws invalid_argument for a
  // session that a cancelled feed left behind, resource_exhausted.
  Session fork() const;
  // The same under another policy: the copy's rows are cut to it at once. Rows that are gone do not come back.
  Session fork(const Policy& policy) const;
  // Goes back to the first n_positions positions, as if nothing had been fed after them, also after a cancelled feed.
  // Before generate(), something has to be fed again, unless no position is taken back. Statistics of what has happened
  // stay. Throws invalid_argument, and changes nothing, where a row that was held at that length has gone since.
  void trim(int n_positions);

  int n_ctx() const;
  const std::string& policy() const;       // its spec
  std::optional<int> budget_rows() const;  // per KV head; none: unlimited, or nothing fed yet
  Statistics statistics() const;
  // The positions of the rows that a head holds, ascending. Throws invalid_argument for a head that does not exist.
  std::vector<int> kept_positions(int layer, int kv_head) const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
