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

}  // namespace winnow::eval
