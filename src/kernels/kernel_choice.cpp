#include "kernels/kernel_choice.h"

#include "base/name_table.h"
#include "hwy/targets.h"

namespace winnow::kernels {
namespace {

constexpr NameTable<KernelChoice, 3> kChoices{"--kernels",
                                              {{KernelChoice::kAuto, "auto"},
                                               {KernelChoice::kReference, "reference"},
                                               {KernelChoice::kRequire, "require"}}};

KernelChoice chosen = KernelChoice::kAuto;

}  // namespace

KernelChoice parse_kernel_choice(std::string_view name) {
  return kChoices.parse(name);
}

KernelChoice chosen_kernels() {
  return chosen;
}

void choose_kernels(KernelChoice choice) {
  chosen = choice;
  // Where all are disabled, a kernel falls back to the last one that it was compiled for.
  hwy::DisableTargets(choice == KernelChoice::kReference ? ~int64_t{0} : 0);
}

}  // namespace winnow::kernels
