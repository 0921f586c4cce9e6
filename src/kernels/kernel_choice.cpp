#include "kernels/kernel_choice.h"

#include "base/name_table.h"
#include "hwy/targets.h"

namespace winnow::kernels {
namespace {

constexpr NameTable<KernelChoice, 2> kChoices{
    "--kernels", {{KernelChoice::kAuto, "auto"}, {KernelChoice::kReference, "reference"}}};

}  // namespace

KernelChoice parse_kernel_choice(std::string_view name) {
  return kChoices.parse(name);
}

void choose_kernels(KernelChoice choice) {
  // Where all are disabled, a kernel falls back to the last one that it was compiled for.
  hwy::DisableTargets(choice == KernelChoice::kReference ? ~int64_t{0} : 0);
}

}  // namespace winnow::kernels
