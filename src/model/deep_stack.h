// Runs something on a stack of its own: some of libllama's pre-tokenizers recurse once per character.
#pragma once

#include <cstddef>
#include <functional>

namespace winnow::model {

// Runs `work` on another thread, whose stack has `stack_bytes`, and waits for it; passes on what it throws.
// Only what is touched takes memory. Throws resource_exhausted when there is no room for the stack.
void run_on_deep_stack(size_t stack_bytes, const std::function<void()>& work);

}  // namespace winnow::model
