// Tells model files apart in results, without reading them whole.
#pragma once

#include <string>

#include "model/gguf_file.h"

namespace winnow::model {

// 16 hexadecimal digits: a hash (FNV-1a, 64 bits) of the file's length, its whole header, and the first 4096 bytes of
// every tensor. Files that agree in all of these get the same one.
std::string fingerprint(const GgufFile& file);

}  // namespace winnow::model
