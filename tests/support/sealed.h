// Files of sections whose content was changed on purpose: with a length and a checksum that fit again.
#pragma once

#include <string>

namespace winnow::test {

// `bytes`, a file of sections (base/section_file.h) of any content, as one whose form is right. At least 32 bytes.
std::string sealed(std::string bytes);

}  // namespace winnow::test
