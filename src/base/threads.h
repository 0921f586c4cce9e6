// Whether threads can be started, for libraries that end the process when they cannot.
#pragma once

namespace winnow {

// Starts `n_threads` - 1 threads beside the calling one, all alive at once, and ends them. Throws resource_exhausted
// when address space or a limit on threads does not suffice. libgomp, which ggml computes with, would end the process
// instead.
void check_threads_start(int n_threads);

}  // namespace winnow
