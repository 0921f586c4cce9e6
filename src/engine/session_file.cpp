#include "engine/session_file.h"

#include <array>
#include <climits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "engine/query_file.h"
#include "model/fingerprint.h"

namespace winnow::engine {
namespace {

constexpr SectionFormat kFormat{
    .magic = {'w', 'i', 'n', 'n', 'o', 'w', 'k', 'v'}, .version = 2, .name = "cache file"};

constexpr const char* kModelSection = "model";
constexpr const char* kSessionSection = "session";
constexpr const char* kTranscriptSection = "transcript";
constexpr const char* kRolesSection = "roles";  // only where the policy needs them
constexpr Token kNoToken = -1;

// What rotates keys. `none` and `linear` with factor 1 are the same, so the name is left out.
struct RopeNumber {
  const char* name;
  double value;
};
std::array<RopeNumber, 9> rope_numbers(const model::Rope& rope) {
  return {{{"mode", static_cast<double>(rope.mode)},
           {"n_rot", static_cast<double>(rope.n_rot)},
           {"freq_base", double{rope.freq_base}},
           {"freq_scale", double{rope.freq_scale}},
           {"ext_factor", double{rope.ext_factor}},
           {"attn_factor", double{rope.attn_factor}},
           {"beta_fast", double{rope.beta_fast}},
           {"beta_slow", double{rope.beta_slow}},
           {"n_ctx_orig", static_cast<double>(rope.n_ctx_orig)}}};
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "the cache '" + path + "' " + what);
}

bool has_context_factors(const model::Model& model) {
  return model.weights().rope_factors_long != nullptr;
}

bool is_long_context(const model::Model& model, int n_ctx) {
  return has_context_factors(model) && model::is_long_context(model.hyper().rope, n_ctx);
}

void put_model(const model::Model& model, int n_ctx, SectionWriter& file) {
  file.begin(kModelSection);
  file.put_text(model.fingerprint());
  file.put_text(model.family().architecture);
  for (const model::Rope& rope : {model.hyper().rope, model.hyper().rope_swa}) {
    for (const RopeNumber& number : rope_numbers(rope)) {
      file.put(number.value);
    }
  }
  file.put_flag(is_long_context(model, n_ctx));
}

// Returns whether the session was one of a long context.
bool read_model(SectionFile& file, const model::Model& model) {
  SectionReader reader = file.read(kModelSection);
  const std::string fingerprint = reader.get_text();
  const std::string family = reader.get_text();
  const std::string own_fingerprint = model.fingerprint();
  if (fingerprint != own_fingerprint) {
    refuse(file.path(), "was made with another model: " + family + " " + fingerprint + ", not " +
                            std::string(model.family().architecture) + " " + own_fingerprint);
  }
  for (const model::Rope& rope : {model.hyper().rope, model.hyper().rope_swa}) {
    for (const RopeNumber& number : rope_numbers(rope)) {
      const auto saved = reader.get<double>();
      if (saved != number.value) {
        refuse(file.path(), "was made with other rope scaling: " + std::string(number.name) + " " +
                                number_text(saved) + ", not " + number_text(number.value));
      }
    }
  }
  const bool is_long = reader.get_flag("the length of the context");
  reader.expect_end();
  return is_long;
}

void put_transcript(const Transcript& transcript, SectionWriter& file) {
  file.begin(kTranscriptSection);
  file.put(static_cast<int32_t>(transcript.tokens.size()));
  file.put_array(std::span<const Token>(transcript.tokens));
  file.put(static_cast<int32_t>(transcript.prompts.size()));
  for (const ReadPrompt& prompt : transcript.prompts) {
    for (const int position : {prompt.begin, prompt.system_begin, prompt.system_end,
                               prompt.document_begin, prompt.document_end, prompt.end}) {
      file.put(int32_t{position});
    }
    file.put(static_cast<int32_t>(prompt.pins.size()));
    for (const policy::PositionSpan& pin : prompt.pins) {
      for (const int number : {pin.begin, pin.end, pin.n_least}) {
        file.put(int32_t{number});
      }
    }
  }
  file.put(transcript.pending.value_or(kNoToken));
  file.put(static_cast<int32_t>(transcript.logits.size()));
  file.put_array(std::span<const float>(transcript.logits));
}

Transcript read_transcript(SectionFile& file, int n_vocab) {
  SectionReader reader = file.read(kTranscriptSection);
  Transcript transcript;
  const int n_tokens = reader.get_int("the number of tokens", 1, INT_MAX);
  transcript.tokens = reader.get_array<Token>(static_cast<size_t>(n_tokens));
  const auto check_token = [&](Token token, Token lowest) {
    if (token < lowest || token >= n_vocab) {
      reader.fail("token " + std::to_string(token) + " is not in the vocabulary");
    }
  };
  for (const Token token : transcript.tokens) {
    check_token(token, 0);
  }
  const int n_prompts = reader.get_int("the number of prompts", 1, n_tokens);
  int from = 0;
  for (int i = 0; i < n_prompts; ++i) {
    ReadPrompt& prompt = transcript.prompts.emplace_back();
    for (int* const position : {&prompt.begin, &prompt.system_begin, &prompt.system_end,
                                &prompt.document_begin, &prompt.document_end, &prompt.end}) {
      *position = from = reader.get_int("a border of a prompt", from, n_tokens);
    }
    const int n_pins = reader.get_int("the number of spans that stay", 0, INT_MAX);
    for (int pin = 0; pin < n_pins; ++pin) {
      const int begin = reader.get_int("where a span begins", 0, n_tokens - 1);
      const int end = reader.get_int("where a span ends", begin + 1, n_tokens);
      prompt.pins.push_back({begin, end, reader.get_int("rows of a span", 1, INT_MAX)});
    }
    if (prompt.end == prompt.begin) {
      reader.fail("a prompt is empty");
    }
  }
  const auto pending = reader.get<Token>();
  check_token(pending, kNoToken);
  if (pending != kNoToken) {
    transcript.pending = pending;
  }
  const int n_logits = reader.get_int("the number of logits", 0, n_vocab);
  if (n_logits != 0 && n_logits != n_vocab) {
    reader.fail(std::to_string(n_logits) + " logits for a vocabulary of " +
                std::to_string(n_vocab) + " tokens");
  }
  transcript.logits = reader.get_array<float>(static_cast<size_t>(n_logits));
  reader.expect_end();
  return transcript;
}

void put_roles(const Transcript& transcript, SectionWriter& file) {
  file.begin(kRolesSection);
  for (const ReadPrompt& prompt : transcript.prompts) {
    file.put(static_cast<int32_t>(prompt.roles.size()));
    for (const roles::Role role : prompt.roles) {
      file.put(static_cast<uint8_t>(role));
    }
  }
}

void read_roles(SectionFile& file, Transcript& transcript) {
  SectionReader reader = file.read(kRolesSection);
  for (ReadPrompt& prompt : transcript.prompts) {
    const int n_document = prompt.document_end - prompt.document_begin;
    const int n_roles = reader.get_int("the number of roles", 0, n_document);
    if (n_roles != 0 && n_roles != n_document) {
      reader.fail(std::to_string(n_roles) + " roles for a document of " +
                  std::to_string(n_document) + " tokens");
    }
    for (const uint8_t role : reader.get_array<uint8_t>(static_cast<size_t>(n_roles))) {
      if (role >= roles::kRoles) {
        reader.fail("there is no role " + std::to_string(role));
      }
      prompt.roles.push_back(static_cast<roles::Role>(role));
    }
  }
  reader.expect_end();
}

void put_session(const SessionOptions& options, const Sequence& sequence, SectionWriter& file) {
  file.begin(kSessionSection);
  file.put_text(sequence.policy.spec());
  file.put(int32_t{sequence.policy.budget_rows()});
  file.put_text(evict_when_name(options.evict));
  file.put_flag(options.chat.has_template);
  file.put_text(options.chat.chat_template);
  file.put_flag(sequence.evicted_during_prompt);
  file.put(sequence.evictions.count);
  file.put(sequence.evictions.ms);
  file.put(sequence.evictions.nan_scores);
}

// A name that this winnow does not have is one of a newer one.
template <class Parse>
auto parse_known(const SectionFile& file, const Parse& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': " + error.what());
  }
}

// The policy as it was resolved.
void resolve(policy::Policy& policy, int budget_rows, const Transcript& transcript,
             const cache::CacheShape& shape, const SectionReader& reader) {
  try {
    policy.resolve(budget_context(transcript.prompts, policy, shape));
  } catch (const Error& error) {
    reader.fail(error.what());
  }
  if (policy.budget_rows() != budget_rows) {
    reader.fail("policy '" + policy.spec() + "' keeps " + std::to_string(policy.budget_rows()) +
                " rows, and " + std::to_string(budget_rows) + " are stated");
  }
}

// Throws bad_data: with the model's fingerprint, its shape must be the model's.
void check_shape(const SectionFile& file, const cache::CacheShape& saved,
                 const policy::Policy& policy, const model::Hyperparameters& hyper) {
  const cache::CacheShape needed = cache_shape(hyper, saved.key_type, saved.value_type, policy, 0);
  if (saved.n_layers != needed.n_layers || saved.n_kv_heads != needed.n_kv_heads ||
      saved.head_dim != needed.head_dim || saved.swa_windows != needed.swa_windows) {
    throw Error(ErrorCode::kBadData, "'" + file.path() + "' is of the model, but not of its shape");
  }
  const auto check_column = [&](bool is_stored, bool is_needed, const char* column) {
    if (is_stored != is_needed) {
      throw Error(ErrorCode::kBadData, "'" + file.path() + "' has " + (is_stored ? "" : "no ") +
                                           column + ", unlike its policy '" + policy.spec() + "'");
    }
  };
  check_column(saved.stores_scores, needed.stores_scores, "scores");
  check_column(saved.stores_mass, needed.stores_mass, "mass");
  check_column(saved.stores_rotations, needed.stores_rotations, "rotations");
}

}  // namespace

void Session::save(const std::string& path) const {
  if (!sequence_ || transcript_.prompts.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "there is nothing to save: no prompt was read");
  }
  if (!sequence_->is_usable) {
    throw Error(ErrorCode::kInvalidArgument,
                "the sequence cannot be saved: an earlier step was cancelled or failed half-way");
  }
  if (shape_.is_remote) {
    throw Error(ErrorCode::kUnsupported, "a cache on a GPU cannot be saved yet (-ngl 0)");
  }
  if (options_.evict == EvictWhen::kLegacyOrder || sequence_->policy.is_stalled()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("a cache that was read ") +
                    (sequence_->policy.is_stalled() ? "at stalled positions" : "in legacy order") +
                    " is not saved: it is there to reproduce a published fault, not to go on from");
  }
  SectionWriter file;
  put_model(model_, n_ctx_, file);
  put_session(options_, *sequence_, file);
  put_transcript(transcript_, file);
  if (sequence_->policy.needs().roles) {
    put_roles(transcript_, file);
  }
  put_queries(sequence_->queries, sequence_->policy.is_contiguous(), file);
  put_similarity(sequence_->similarity, file);
  put_moments(sequence_->moments, file);
  put_directions(sequence_->key_directions, file);
  cache::put_cache(sequence_->cache, file);
  file.write(path, kFormat);
}

SavedSession load_session(const std::string& path, const model::Model& model) {
  SectionFile file(path, kFormat);
  const bool is_long = read_model(file, model);
  Transcript transcript = read_transcript(file, model.hyper().n_vocab);
  cache::SavedCache rows(file, static_cast<int>(transcript.tokens.size()));

  SectionReader reader = file.read(kSessionSection);
  policy::Policy policy =
      parse_known(file, [&] { return policy::Policy::parse(reader.get_text()); });
  if (policy.needs().roles) {
    read_roles(file, transcript);
  }
  const int budget_rows = reader.get_int("the budget", 1, INT_MAX);
  const EvictWhen evict = parse_known(file, [&] { return parse_evict_when(reader.get_text()); });
  ChatFormat chat;
  chat.has_template = reader.get_flag("having a chat template");
  chat.chat_template = reader.get_text();
  const bool evicted_during_prompt = reader.get_flag("eviction during a prompt");
  EvictionStats evictions;
  evictions.count = reader.get<int64_t>();
  evictions.ms = reader.get<double>();
  evictions.nan_scores = reader.get<int64_t>();
  if (evictions.count < 0 || !(evictions.ms >= 0) || evictions.nan_scores < 0) {
    reader.fail("evictions have a negative number or time");
  }
  reader.expect_end();
  check_shape(file, rows.shape(), policy, model.hyper());
  // What a row takes beside keys and values is the policy's, in the file or not.
  const cache::CacheShape shape =
      cache_shape(model.hyper(), rows.shape().key_type, rows.shape().value_type, policy, 0);
  resolve(policy, budget_rows, transcript, shape, reader);
  kernels::QueryWindow queries = query_window(model.hyper(), policy);
  read_queries(file, static_cast<int>(transcript.tokens.size()), policy.is_contiguous(), queries);
  kernels::ResidualSimilarity similarity = residual_similarity(model.hyper(), policy);
  read_similarity(file, static_cast<int>(transcript.tokens.size()), similarity);
  kernels::QueryMoments moments = query_moments(model.hyper(), policy);
  read_moments(file, static_cast<int>(transcript.tokens.size()), moments);
  policy::KeyDirections directions = key_directions(model.hyper(), policy);
  read_directions(file, directions);
  file.refuse_others();
  return {.file = std::move(file),
          .rows = std::move(rows),
          .policy = std::move(policy),
          .queries = std::move(queries),
          .similarity = std::move(similarity),
          .moments = std::move(moments),
          .key_directions = std::move(directions),
          .chat = std::move(chat),
          .evict = evict,
          .transcript = std::move(transcript),
          .evicted_during_prompt = evicted_during_prompt,
          .evictions = evictions,
          .is_long_context = is_long};
}

void check_context_of(const SavedSession& saved, const model::Model& model, int n_ctx) {
  const auto n_read = static_cast<int>(saved.transcript.tokens.size());
  const int n_taken = saved.policy.is_contiguous() ? saved.rows.next_contiguous() : n_read;
  if (n_taken + (saved.transcript.pending ? 1 : 0) > n_ctx) {
    refuse(saved.file.path(),
           "has " + std::to_string(n_taken) + " positions, the context " + std::to_string(n_ctx));
  }
  if (saved.is_long_context != is_long_context(model, n_ctx)) {
    const std::string border = std::to_string(model.hyper().rope.n_ctx_orig);
    refuse(saved.file.path(),
           saved.is_long_context ? "was made for a context of more than " + border +
                                       " positions, which rotates otherwise; this one (-c) is of " +
                                       std::to_string(n_ctx)
                                 : "was made for a context of up to " + border +
                                       " positions, and a longer one rotates otherwise; this one "
                                       "(-c) is of " +
                                       std::to_string(n_ctx));
  }
}

}  // namespace winnow::engine
