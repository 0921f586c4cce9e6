// How many threads there are to be, and whether they can be started, for libraries that end the process when they cannot.
#pragma once

namespace winnow {

inline constexpr int kMaxThreads = 512;  // ggml's own limit, GGML_MAX_N_THREADS

// -1 becomes as many as the machine reports. Throws invalid_argument for what is neither that nor 1 … kMaxThreads.
int resolve_threads(int n_threads);

// Starts `n_threads` - 1 threads beside the calling one, all alive at once, and ends them. Throws resource_exhausted
// when address space or a limit on threads does not suffice. libgomp, which ggml computes with, would end the process
// instead.
void check_threads_start(int n_threads);

}  // namespace winnow
