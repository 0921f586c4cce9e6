#include "eval/experiment.h"

namespace winnow::eval {

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
