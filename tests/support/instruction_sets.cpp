#include "support/instruction_sets.h"

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace winnow::test {

void for_every_instruction_set(const std::function<void(const std::string& name)>& body) {
#ifdef HWY_COMPILE_ONLY_STATIC  // tools/check_neon
  body(hwy::TargetName(HWY_STATIC_TARGET));
#else
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
#endif
}

}  // namespace winnow::test
