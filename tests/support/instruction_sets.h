// Runs a test once for every instruction set that the kernels were compiled for and the machine has.
#pragma once

#include <functional>
#include <string>

namespace winnow::test {

void for_every_instruction_set(const std::function<void(const std::string& name)>& body);

}  // namespace winnow::test
