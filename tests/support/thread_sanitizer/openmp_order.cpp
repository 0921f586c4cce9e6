// Tells the thread sanitizer in which order OpenMP runs ggml's threads: libgomp waits on futexes, which it does not see,
// so each node of a graph would seem to race with the node before it. No report is suppressed.
//
// These functions stand before libgomp's of the same names, and call them. What they say is what OpenMP promises:
// what comes before a region or a barrier is over for every thread that has passed it, and nothing else is.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#define WINNOW_UNSEEN __attribute__((no_sanitize("thread")))

namespace {

// One parallel region; the sanitizer knows the moments by their addresses.
struct Region {
  void (*body)(void*);
  void* data;
  char start;
  char end;
  char barriers[2];  // a thread can be one barrier ahead of another, never two
};

struct Place {
  Region* region = nullptr;
  unsigned n_barriers = 0;  // that this thread has passed in the region
};
thread_local Place place;

template <typename Function>
WINNOW_UNSEEN Function* next_of(Function* /*type*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

WINNOW_UNSEEN void run_body(void* data) {
  auto* const region = static_cast<Region*>(data);
  const Place outer = place;
  place = {region, 0};
  __tsan_acquire(&region->start);
  region->body(region->data);
  __tsan_release(&region->end);
  place = outer;
}

}  // namespace

extern "C" {

void GOMP_parallel(void (*body)(void*), void* data, unsigned n_threads, unsigned flags);
void GOMP_barrier();

WINNOW_UNSEEN void GOMP_parallel(void (*body)(void*), void* data, unsigned n_threads,
                                 unsigned flags) {
  Region region{body, data, 0, 0, {0, 0}};
  __tsan_release(&region.start);
  next_of(&GOMP_parallel, "GOMP_parallel")(run_body, &region, n_threads, flags);
  __tsan_acquire(&region.end);
}

WINNOW_UNSEEN void GOMP_barrier() {
  Region* const region = place.region;
  if (region == nullptr) {  // outside of any region a barrier waits for nobody
    return;
  }
  char* const barrier = &region->barriers[place.n_barriers++ % 2];
  __tsan_release(barrier);
  next_of(&GOMP_barrier, "GOMP_barrier")();
  __tsan_acquire(barrier);
}
}
