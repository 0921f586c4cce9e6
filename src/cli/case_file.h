// What `winnow score` reads and writes: .npz files (docs/cli.md).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/case.h"

namespace winnow::cli {

// Keys K, and where they are there values V, queries Q, positions and scale. `has_layers`: K has an axis of layers.
struct CaseFile {
  engine::Case content;
  bool has_layers = false;
};

// `path` is what messages call the bytes. Throws what NpzFile throws, or bad_data, naming every array that is unknown or
// missing and every contradiction at once.
CaseFile parse_case(std::span<const std::byte> bytes, const std::string& path);

// The results of policies [n_policies] and their specs, as a file's bytes. Arrays have an axis of layers where the case
// has, and before it one of policies where there are several.
std::string format_results(const CaseFile& file, std::span<const std::string> specs,
                           std::span<const engine::CaseResult> results);

}  // namespace winnow::cli
