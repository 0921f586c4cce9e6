#include "model/deep_stack.h"

#include <pthread.h>

#include <exception>

#include "base/error.h"
#include "base/memory.h"

namespace winnow::model {
namespace {

constexpr size_t kUnit = 1 << 16;  // a multiple of any page size

struct Job {
  const std::function<void()>& work;
  std::exception_ptr error;
};

void* run_job(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  try {
    job.work();
  } catch (...) {
    job.error = std::current_exception();
  }
  return nullptr;
}

}  // namespace

// std::jthread cannot choose the size of its stack.
void run_on_deep_stack(size_t stack_bytes, const std::function<void()>& work) {
  stack_bytes = (stack_bytes + kUnit - 1) / kUnit * kUnit;
  const MemoryLimit limit = available_memory();
  Job job = {work, nullptr};
  pthread_t thread{};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  const bool is_started = stack_bytes <= limit.bytes &&
                          pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
                          pthread_create(&thread, &attributes, run_job, &job) == 0;
  pthread_attr_destroy(&attributes);
  if (!is_started) {
    throw Error(ErrorCode::kResourceExhausted, "a stack of " + format_bytes(stack_bytes) +
                                                   " is needed; " + format_bytes(limit.bytes) +
                                                   " are available (" + limit.source + ")");
  }
  pthread_join(thread, nullptr);
  if (job.error) {
    std::rethrow_exception(job.error);
  }
}

}  // namespace winnow::model
