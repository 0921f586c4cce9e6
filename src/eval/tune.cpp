#include "eval/tune.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "eval/document_questions.h"
#include "eval/random.h"
#include "eval/scoring.h"
#include "eval/statistics.h"
#include "policy/spec.h"

namespace winnow::eval {
namespace {

using engine::Session;

constexpr int kBudgets[] = {2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80};
constexpr int kMostHeldOut = 300;
// Of the budget that tuning chose, where the held-out sequence begins.
constexpr int kStepsAbove = 2;
constexpr double kConfidence = 0.95;

// What the document can be asked, in an order drawn from the seed.
std::vector<std::string> questions_about(const std::string& document, uint64_t seed) {
  std::vector<std::string> questions;
  for (const auto& make : {lookup_questions, cloze_questions, quote_questions}) {
    for (const DocumentQuestion& each : make(document)) {
      questions.push_back(each.question);
    }
  }
  PythonRandom random(seed);
  random.shuffle(questions);
  return questions;
}

struct Question {
  engine::PromptTokens tokens;
  std::optional<std::string> full_answer = {};  // once it was asked for
};

class Tuner {
 public:
  Tuner(const model::Model& model, const std::string& document, const TuneOptions& options,
        const std::atomic<bool>* cancel)
      : model_(model), document_(document), options_(options), cancel_(cancel) {}

  TuneResult run(const std::function<void(const TuneStep&)>& on_step);

 private:
  void choose_questions();
  void read_document();
  std::unique_ptr<Session> cut(const std::string& spec, int budget) const;
  std::string answer(const Session& read, const Question& question) const;
  TuneStep try_budget(const std::string& spec, int budget, bool is_held_out);

  const model::Model& model_;
  const std::string& document_;
  const TuneOptions& options_;
  const std::atomic<bool>* cancel_;
  std::vector<Question> tuning_;
  std::vector<Question> held_out_;
  std::unique_ptr<Session> full_;  // has read the document
};

void Tuner::choose_questions() {
  const std::vector<std::string> questions = questions_about(document_, options_.seed);
  const auto n_tuning = static_cast<size_t>(options_.n_tuning);
  const size_t n_left = questions.size() - std::min(questions.size(), n_tuning);
  const size_t n_most = options_.n_held_out > 0 ? static_cast<size_t>(options_.n_held_out)
                                                : static_cast<size_t>(kMostHeldOut);
  const size_t n_held_out = std::min(n_left, n_most);
  const double least_loss =
      n_held_out == 0 ? 1 : binomial_upper_bound(0, static_cast<int>(n_held_out), kConfidence);
  if (least_loss > options_.max_loss) {
    throw Error(ErrorCode::kInvalidArgument,
                "the document gives " + std::to_string(questions.size()) + " questions, and " +
                    std::to_string(n_held_out) + " of them held out can show a loss under " +
                    rounded_text(100 * least_loss, 1) + " % at best; asked for is " +
                    number_text(100 * options_.max_loss) + " %");
  }
  for (size_t i = 0; i < n_tuning + n_held_out; ++i) {
    (i < n_tuning ? tuning_ : held_out_)
        .push_back({.tokens = engine::tokenize_question(
                        model_, prompt_text(options_.model, document_, questions[i]))});
  }
}

void Tuner::read_document() {
  std::vector<Arm> arms;
  for (const std::string& spec : options_.policies) {
    arms.push_back({.policy = policy::Policy::parse(spec, "50%")});
  }
  const policy::Needs needs = needs_of(arms);
  const engine::PromptTokens document =
      engine::tokenize_document(model_, prompt_text(options_.model, document_, ""));
  int n_longest = 0;
  for (const auto* const list : {&tuning_, &held_out_}) {
    for (const Question& question : *list) {
      n_longest = std::max(n_longest, question.tokens.size());
    }
  }
  const int n_replayed =
      replay_room(model_, options_.model, arms, static_cast<int>(document.document.size()));
  full_ = std::make_unique<Session>(
      model_, policy::Policy::full(needs),
      session_options(options_.model,
                      document.size() + n_longest + options_.n_answer_tokens + n_replayed));
  full_->read(document, {.logits = engine::WantedLogits::kNone, .cancel = cancel_});
}

std::unique_ptr<Session> Tuner::cut(const std::string& spec, int budget) const {
  return full_->fork(policy::Policy::parse(spec, std::to_string(budget) + "%"));
}

std::string Tuner::answer(const Session& read, const Question& question) const {
  const std::unique_ptr<Session> session = read.fork();
  session->read(question.tokens, {.cancel = cancel_});
  const engine::Generation generation = session->generate(
      {.n_predict = options_.n_answer_tokens, .sampling = {.temperature = 0}}, {.cancel = cancel_});
  if (generation.stop == engine::StopReason::kCancelled) {
    throw Error(ErrorCode::kCancelled, "tuning was cancelled");
  }
  return normalise(first_paragraph(generation.text));
}

// Tuning looks at the share of different answers, held-out questions at its bound. Stops once it cannot pass.
TuneStep Tuner::try_budget(const std::string& spec, int budget, bool is_held_out) {
  std::vector<Question>& questions = is_held_out ? held_out_ : tuning_;
  const auto n_all = static_cast<int>(questions.size());
  const auto passes = [&](int n_different) {
    return is_held_out ? binomial_upper_bound(n_different, n_all, kConfidence) <= options_.max_loss
                       : n_different <= options_.max_loss * n_all;
  };
  const std::unique_ptr<Session> session = cut(spec, budget);
  TuneStep step{.policy = session->policy().spec(),
                .is_held_out = is_held_out,
                .kv_bytes = static_cast<int64_t>(session->sequence()->cache.now_bytes())};
  for (Question& question : questions) {
    if (!question.full_answer) {
      question.full_answer = answer(*full_, question);
    }
    ++step.n_questions;
    step.n_different += answer(*session, question) == *question.full_answer ? 0 : 1;
    if (!passes(step.n_different)) {
      break;
    }
  }
  step.upper = binomial_upper_bound(step.n_different, step.n_questions, kConfidence);
  step.is_passed = passes(step.n_different);
  return step;
}

TuneResult Tuner::run(const std::function<void(const TuneStep&)>& on_step) {
  choose_questions();
  read_document();
  TuneResult result;
  result.n_document = full_->transcript().n_document();
  result.n_tuning = static_cast<int>(tuning_.size());
  result.n_held_out = static_cast<int>(held_out_.size());
  result.kv_full_bytes = static_cast<int64_t>(full_->sequence()->cache.now_bytes());
  const auto attempt = [&](const std::string& spec, int place, bool is_held_out) {
    result.steps.push_back(try_budget(spec, kBudgets[place], is_held_out));
    on_step(result.steps.back());
    return result.steps.back().is_passed;
  };

  const int n_budgets = static_cast<int>(std::size(kBudgets));
  std::string best;
  int smallest = n_budgets;  // place of the best's budget
  for (const std::string& spec : options_.policies) {
    if (smallest == 0 || !attempt(spec, smallest - 1, false)) {
      continue;  // not better than what there is
    }
    int passed = smallest - 1;
    for (int low = 0; low < passed;) {
      const int middle = (low + passed) / 2;
      if (attempt(spec, middle, false)) {
        passed = middle;
      } else {
        low = middle + 1;
      }
    }
    best = spec;
    smallest = passed;
  }
  if (best.empty()) {
    return result;
  }
  for (int place = std::min(smallest + kStepsAbove, n_budgets - 1); place >= smallest; --place) {
    if (!attempt(best, place, true)) {
      break;
    }
    const TuneStep& step = result.steps.back();
    result.policy = step.policy;
    result.loss = static_cast<double>(step.n_different) / step.n_questions;
    result.upper = step.upper;
    result.kv_bytes = step.kv_bytes;
  }
  return result;
}

}  // namespace

void check_tune_options(const TuneOptions& options) {
  if (!(options.max_loss > 0 && options.max_loss < 1)) {
    throw Error(ErrorCode::kInvalidArgument, "a loss of " + number_text(100 * options.max_loss) +
                                                 " %; it lies between 0 and 100 %");
  }
  if (options.policies.empty() || options.n_tuning < 1 || options.n_held_out < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "tuning needs a policy and at least one question to choose by");
  }
  for (const std::string& spec : options.policies) {
    if (policy::has_option(spec, "budget")) {
      throw Error(ErrorCode::kInvalidArgument,
                  "policy '" + spec + "' has a budget, which tuning is to find");
    }
    policy::Policy::parse(spec, "50%");  // throws
  }
}

TuneResult tune(const model::Model& model, const std::string& document, const TuneOptions& options,
                const std::function<void(const TuneStep&)>& on_step,
                const std::atomic<bool>* cancel) {
  check_tune_options(options);
  return Tuner(model, document, options, cancel).run(on_step);
}

}  // namespace winnow::eval
