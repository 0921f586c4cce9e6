#include "eval/answers.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/stopwatch.h"
#include "eval/kept.h"
#include "eval/likelihood.h"
#include "eval/role_diagnosis.h"
#include "kernels/attend.h"

namespace winnow::eval {
namespace {

using engine::PromptTokens;
using engine::Session;
using model::Token;

// What the template has beside document and question.
int n_template_tokens(const model::Model& model, const ModelSettings& settings) {
  const PromptTokens tokens = engine::tokenize_prompt(model, prompt_text(settings, "x", "x"));
  return static_cast<int>(tokens.before.size() + tokens.after.size()) + 1;  // and a blank line
}

std::string prompt_hash(const Prompt& prompt) {
  std::vector<Token> tokens = prompt.document.all();
  for (const PromptTokens& question : prompt.questions) {
    const std::vector<Token> more = question.all();
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return content_hash(std::as_bytes(std::span(tokens)));
}

// The mean negative log-likelihood of a perfect answer's tokens, in nats. They are read together, but where generated tokens
// read other rows than those of prompts.
double gold_nll(const Session& session, const std::vector<Token>& gold) {
  double sum = negative_log_likelihood(session.transcript().logits, gold.front());
  if (gold.size() > 1) {
    const auto n_vocab = static_cast<size_t>(session.transcript().logits.size());
    const std::unique_ptr<Session> copy = session.fork();
    const std::span<const Token> fed = std::span(gold).first(gold.size() - 1);
    const std::vector<float> logits =
        session.policy().page_rule().is_wanted()
            ? copy->follow(fed)
            : copy->read({.document = std::vector<Token>(fed.begin(), fed.end())},
                         {.logits = engine::WantedLogits::kAll});
    for (size_t i = 1; i < gold.size(); ++i) {
      sum +=
          negative_log_likelihood(std::span(logits).subspan((i - 1) * n_vocab, n_vocab), gold[i]);
    }
  }
  return sum / static_cast<double>(gold.size());
}

// Of a session that has read a document with the full cache and column mass.
RoleDiagnosis diagnose(const Session& session, const model::Hyperparameters& hyper) {
  const engine::ReadPrompt& prompt = session.transcript().prompts.front();
  const cache::Cache& cache = session.sequence()->cache;
  const cache::CacheShape& shape = cache.shape();
  if (prompt.roles.empty() || shape.n_windowed_layers() == shape.n_layers) {
    throw Error(ErrorCode::kInvalidArgument,
                prompt.roles.empty()
                    ? "--by-role: the document's tokens are not found in its text"
                    : "--by-role: all layers of the model have a window, so that nothing is cut");
  }
  const int n_queries = session.sequence()->positions_fed;
  std::vector<std::vector<HeadMass>> mass(static_cast<size_t>(shape.n_layers));
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads && shape.swa_window(layer) == 0; ++head) {
      const cache::HeadRows rows = cache.rows(layer, head);
      mass[static_cast<size_t>(layer)].emplace_back(rows.mass, rows.mass + rows.n);
    }
  }
  // Sums over the queries of a KV head's query heads, each of which gives away 1.
  const double unit = 1 / (kernels::kMassScale * hyper.n_heads / hyper.n_kv_heads);
  for (std::vector<HeadMass>& layer : mass) {
    for (HeadMass& head : layer) {
      WINNOW_CHECK(std::ssize(head) == n_queries);
      std::ranges::transform(head, head.begin(), [unit](double sum) { return sum * unit; });
    }
  }
  return {{prompt.document_begin, prompt.roles}, std::move(mass)};
}

std::vector<std::vector<std::vector<int>>> kept_positions(const cache::Cache& cache) {
  std::vector<std::vector<std::vector<int>>> kept(static_cast<size_t>(cache.shape().n_layers));
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    for (int head = 0; head < cache.shape().n_kv_heads; ++head) {
      kept[static_cast<size_t>(layer)].push_back(cache.positions(layer, head));
    }
  }
  return kept;
}

}  // namespace

int Prompt::n_tokens(int question) const {
  return document.size() + questions[static_cast<size_t>(question)].size();
}

int Prompt::n_longest() const {
  int most = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const int n_answer = std::max(sample.n_answer_tokens, static_cast<int>(golds[i].size()));
    most = std::max(most, questions[i].size() + n_answer);
  }
  return document.size() + most;
}

Prompt make_prompt(const Task& task, const SampleId& id, const model::Model& model,
                   const ModelSettings& settings) {
  const model::Vocabulary& vocabulary = model.vocabulary();
  const auto tokenize = [&](std::string_view text) {
    return vocabulary.tokenize(text, model::SpecialText::kPlain, model::TextStart::kContinues);
  };
  Prompt prompt;
  prompt.sample = task.make({.index = id.index,
                             .n_tokens = id.n_tokens,
                             .seed = id.seed,
                             .n_template_tokens = n_template_tokens(model, settings),
                             .count_tokens = [&](std::string_view text) {
                               return static_cast<int>(tokenize(text).size());
                             }});
  const auto text = [&](const std::string& question) {
    return prompt_text(settings, prompt.sample.document, question);
  };
  prompt.document = engine::tokenize_document(model, text(""));
  // Without a template nothing else says that the answer comes next.
  const bool is_continued = !settings.chat.has_template || (settings.chat.chat_template.empty() &&
                                                            vocabulary.chat_template().empty());
  if (is_continued) {
    for (std::string& question : prompt.sample.questions) {
      question += "\n" + prompt.sample.answer_cue;
    }
  }
  for (size_t i = 0; i < prompt.sample.questions.size(); ++i) {
    prompt.questions.push_back(engine::tokenize_question(model, text(prompt.sample.questions[i])));
    prompt.golds.push_back(tokenize(gold_text(prompt.sample, static_cast<int>(i))));
  }
  return prompt;
}

// What the arms of a sample have in common.
struct Answers::Shared {
  std::unique_ptr<Session> read;                // the document; null where no arm needs it
  std::vector<std::unique_ptr<Session>> asked;  // and each question; likewise
  std::optional<RoleDiagnosis> of_document;     // of `read`, where that is wanted
  std::optional<RoleDiagnosis> of_prompt;       // of the first that is asked, likewise
  double ms = 0;

  // What an arm is compared with; null where nothing is shared.
  const RoleDiagnosis* diagnosis(QuestionMode mode) const {
    const std::optional<RoleDiagnosis>& diagnosis =
        mode == QuestionMode::kAgnostic ? of_document : of_prompt;
    const bool is_shared = mode != QuestionMode::kPerChunk && mode != QuestionMode::kLegacyOrder;
    return is_shared && diagnosis ? &*diagnosis : nullptr;
  }
};

Answers::Shared Answers::read_shared(const Prompt& prompt, std::span<const Arm> arms,
                                     const std::atomic<bool>* cancel) const {
  const auto is_any = [&](QuestionMode mode) {
    return std::ranges::any_of(arms, [&](const Arm& arm) { return arm.question == mode; });
  };
  Shared shared;
  const bool is_asked = is_any(QuestionMode::kAware) || is_any(QuestionMode::kNone);
  if (!is_asked && !is_any(QuestionMode::kAgnostic)) {
    return shared;
  }
  const Stopwatch stopwatch;
  policy::Needs needs = needs_of(arms);
  needs.column_mass |= is_by_role_;
  const int n_replayed =
      replay_room(model_, settings_, arms, static_cast<int>(prompt.document.document.size()));
  shared.read =
      std::make_unique<Session>(model_, policy::Policy::full(needs),
                                session_options(settings_, prompt.n_longest() + n_replayed));
  shared.read->read(prompt.document, {.logits = engine::WantedLogits::kNone, .cancel = cancel});
  for (size_t i = 0; is_asked && i < prompt.questions.size(); ++i) {
    shared.asked.push_back(shared.read->fork());
    shared.asked.back()->read(prompt.questions[i], {.cancel = cancel});
  }
  if (is_by_role_) {
    shared.of_document = diagnose(*shared.read, model_.hyper());
    if (is_asked) {
      shared.of_prompt = diagnose(*shared.asked.front(), model_.hyper());
    }
  }
  shared.ms = stopwatch.ms();
  return shared;
}

// A session that has read the prompt, and is cut as the arm says.
std::unique_ptr<Session> Answers::ask(const Prompt& prompt, int question, const Arm& arm,
                                      const Shared& shared, const std::atomic<bool>* cancel,
                                      Record& record) const {
  const auto i = static_cast<size_t>(question);
  const Stopwatch stopwatch;
  std::unique_ptr<Session> session;
  switch (arm.question) {
    case QuestionMode::kNone:
    case QuestionMode::kAware:
      session = shared.asked[i]->fork(arm.policy);
      break;
    case QuestionMode::kAgnostic:
      session = shared.read->fork(arm.policy);
      break;
    case QuestionMode::kPerChunk:
    case QuestionMode::kLegacyOrder: {
      engine::SessionOptions options = session_options(settings_, prompt.n_longest());
      options.evict = arm.question == QuestionMode::kPerChunk ? engine::EvictWhen::kPerChunk
                                                              : engine::EvictWhen::kLegacyOrder;
      session = std::make_unique<Session>(model_, arm.policy, options);
      PromptTokens whole = prompt.document;
      whole.question = prompt.questions[i].question;
      whole.after = prompt.questions[i].after;
      session->read(whole, {.cancel = cancel});
      break;
    }
  }
  record.compress_ms += stopwatch.ms();
  if (arm.question == QuestionMode::kAgnostic) {
    session->read(prompt.questions[i], {.cancel = cancel});
  }
  return session;
}

void Answers::answer(const Prompt& prompt, const Arm& arm, const Shared& shared,
                     const std::atomic<bool>* cancel, Record& record) const {
  const auto n_questions = static_cast<int>(prompt.questions.size());
  for (int question = 0; question < n_questions; ++question) {
    check_cancel(cancel);
    const std::unique_ptr<Session> session = ask(prompt, question, arm, shared, cancel, record);
    if (question == 0) {
      record_kept(*session->sequence(), model_.hyper(), record);
      if (const RoleDiagnosis* const diagnosis = shared.diagnosis(arm.question)) {
        if (arm.is_full()) {
          diagnosis->describe_mass(record);
        } else {
          diagnosis->describe_kept(kept_positions(session->sequence()->cache), record);
        }
      }
    }
    const Stopwatch stopwatch;
    const double nll = gold_nll(*session, prompt.golds[static_cast<size_t>(question)]);
    const engine::Generation generation = session->generate(
        {.n_predict = prompt.sample.n_answer_tokens, .sampling = {.temperature = 0}},
        {.cancel = cancel});
    record.answer_ms += stopwatch.ms();
    check_cancel(cancel);
    const Score score = task_.score(prompt.sample, question, generation.text);
    record.answers.push_back(generation.text);
    record.n_generated += generation.n_generated;
    record.metrics["score"] += score.primary / n_questions;
    record.metrics["gold_nll"] += nll / n_questions;
    for (const auto& [name, value] : score.secondary) {
      record.metrics[name] += value / n_questions;
    }
    record_end(*session->sequence(), static_cast<int>(session->transcript().tokens.size()), 0,
               record);
  }
}

void Answers::measure(const SampleId& sample, std::span<const Arm> arms,
                      const std::function<void(Record)>& done, const std::atomic<bool>* cancel) {
  Prompt prompt;
  Shared shared;
  try {
    prompt = make_prompt(task_, sample, model_, settings_);
    shared = read_shared(prompt, arms, cancel);
  } catch (const Error& error) {
    refuse(sample, arms, error, done);
    return;
  }
  const std::string hash = prompt_hash(prompt);
  for (const Arm& arm : arms) {
    Record record = record_for(sample, arm);
    record.id = prompt.sample.id;
    record.labels = prompt.sample.labels;
    record.prompt_hash = hash;
    record.n_prompt = prompt.n_tokens(0);
    record.n_document = static_cast<int>(prompt.document.document.size());
    record.prefill_ms = shared.ms;
    try {
      answer(prompt, arm, shared, cancel, record);
    } catch (const Error& error) {
      refuse(sample, {&arm, 1}, error, done);
      continue;
    }
    done(std::move(record));
  }
}

}  // namespace winnow::eval
