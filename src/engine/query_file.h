// What a session remembers of queries and of its first keys, as sections of its file (docs/cache-files.md).
#pragma once

#include "base/section_file.h"
#include "kernels/query_moments.h"
#include "kernels/query_window.h"
#include "kernels/residual_similarity.h"
#include "policy/key_directions.h"

namespace winnow::engine {

// Writes nothing where no queries are remembered; what they are rotated to, where `has_rotations`. The window must stay
// until the file is written.
void put_queries(const kernels::QueryWindow& window, bool has_rotations, SectionWriter& file);

// Into `window`, which is empty and of the shape that the policy needs, after n_positions were fed. Throws bad_data where
// the file has too many queries, or none that are needed.
void read_queries(SectionFile& file, int n_positions, bool has_rotations,
                  kernels::QueryWindow& window);

// Likewise, how much attention changes the residual stream.
void put_similarity(const kernels::ResidualSimilarity& similarity, SectionWriter& file);
void read_similarity(SectionFile& file, int n_positions, kernels::ResidualSimilarity& similarity);

// Likewise, the sums that moments are made of.
void put_moments(const kernels::QueryMoments& moments, SectionWriter& file);
void read_moments(SectionFile& file, int n_positions, kernels::QueryMoments& moments);

// Likewise, the directions of the first keys, of the layers that are frozen.
void put_directions(const policy::KeyDirections& directions, SectionWriter& file);
void read_directions(SectionFile& file, policy::KeyDirections& directions);

}  // namespace winnow::engine
