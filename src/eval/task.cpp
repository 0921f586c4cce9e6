#include "eval/task.h"

#include "base/error.h"

namespace winnow::eval {

std::string gold_text(const Sample& sample, int question) {
  WINNOW_CHECK(question >= 0 && question < std::ssize(sample.answers));
  const std::vector<std::string>& gold = sample.answers[static_cast<size_t>(question)];
  WINNOW_CHECK(!gold.empty());
  std::string text = gold.front();
  for (size_t i = 1; i < gold.size() && sample.rule == AnswerRule::kAll; ++i) {
    text += ", " + gold[i];
  }
  return text;
}

}  // namespace winnow::eval
