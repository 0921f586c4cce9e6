// Starts libllama and ggml once per process and keeps what they print out of the user's sight.
#pragma once

#include <string>

namespace winnow::model {

// Initialises both libraries and takes over their log. Thread-safe, cheap after the first call.
void start_libllama();

// The first error line they wrote on this thread since the last clearing, as printable text: it names the
// cause, later ones say what failed in consequence. Empty when there is none.
std::string libllama_error();
void clear_libllama_error();

// Throws resource_exhausted where that error says that memory did not suffice: no fault of the file.
void check_libllama_memory(const std::string& action);

}  // namespace winnow::model
