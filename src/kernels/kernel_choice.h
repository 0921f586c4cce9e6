// Which of the compiled kernels run: the fastest that the processor has, or the plainest there are.
#pragma once

#include <string_view>

namespace winnow::kernels {

// kReference: of each kernel the one for the oldest instruction set, down to one lane at a time for selection. All have the same
// results (docs/decisions/simd-dispatch.md); it is there to show that. On a GPU it has rows chosen on the host.
// kRequire: kAuto, and what a GPU has no kernel for is refused, rather than done on the host from copies.
enum class KernelChoice { kAuto, kReference, kRequire };

// "auto", "reference", "require"; throws invalid_argument with the list.
KernelChoice parse_kernel_choice(std::string_view name);

// For the whole program, from the next kernel on. While none runs.
void choose_kernels(KernelChoice choice);
KernelChoice chosen_kernels();

}  // namespace winnow::kernels
