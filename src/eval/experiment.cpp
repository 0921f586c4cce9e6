#include "eval/experiment.h"

#include <algorithm>

namespace winnow::eval {

engine::SessionOptions session_options(const ModelSettings& settings, int n_ctx) {
  engine::SessionOptions options;
  options.key_type = settings.key_type;
  options.value_type = settings.value_type;
  options.n_ctx = n_ctx;
  options.allow_beyond_context = settings.allow_beyond_context;
  options.engine = settings.engine;
  options.chat = settings.chat;
  return options;
}

int replay_room(const model::Model& model, const ModelSettings& settings, std::span<const Arm> arms,
                int n_document) {
  int n_most = 0;
  for (const Arm& arm : arms) {
    const policy::Replay replay = arm.policy.needs().replay;
    for (const bool is_turn_open : {false, true}) {
      if (replay.is_wanted()) {
        const engine::ReplayRequest request =
            engine::replay_request(model, settings.chat, is_turn_open);
        n_most = std::max(n_most, engine::replay_size(request, n_document, replay.chunk).n_most);
      }
    }
  }
  return n_most;
}

engine::PromptText prompt_text(const ModelSettings& settings, const std::string& document,
                               const std::string& question) {
  return {.document = document,
          .question = question,
          .has_chat_template = settings.chat.has_template,
          .chat_template = settings.chat.chat_template,
          .roles = settings.roles};
}

void check_cancel(const std::atomic<bool>* cancel) {
  if (cancel != nullptr && cancel->load()) {
    throw Error(ErrorCode::kCancelled, "the evaluation was cancelled");
  }
}

Record record_for(const SampleId& sample, const Arm& arm) {
  Record record;
  record.n_tokens = sample.n_tokens;
  record.index = sample.index;
  record.question = question_mode_name(arm.question);
  record.policy = arm.policy.spec();
  return record;
}

void refuse(const SampleId& sample, std::span<const Arm> arms, const Error& error,
            const std::function<void(Record)>& done) {
  if (error.code() != ErrorCode::kInvalidArgument) {
    throw;
  }
  for (const Arm& arm : arms) {
    Record record = record_for(sample, arm);
    record.refused = error.what();
    done(std::move(record));
  }
}

}  // namespace winnow::eval
