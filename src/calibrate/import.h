// Filters that others have made, as files of ours.
#pragma once

#include <span>
#include <string>

#include "model/model.h"
#include "policy/filters.h"

namespace winnow::calibrate {

// From a safetensors or .npz file. One array [n_layers, n_kv_heads, head_dim] is what the paper's authors publish: of queries
// after rotation, pointing away from them, so it is turned round. Arrays layer_0, layer_1, … [n_kv_heads, head_dim] are the
// published layout of another implementation, which takes queries before rotation; `frame` says what its keys are. Dimensions
// come in Hugging Face's order, and go into the model file's. Throws what NpzFile throws, bad_data, unsupported (another
// type of elements), or invalid_argument for a model of another shape.
policy::Filters import_filters(std::span<const std::byte> file, const std::string& path,
                               const model::Model& model, policy::FilterFrame frame_of_layers);

// A vector [head_dim] from Hugging Face's order of dimensions, where halves of the first n_rot rotate together, into that of
// files whose rotation turns neighbours.
void to_neighbours(std::span<float> vector, int n_rot);

}  // namespace winnow::calibrate
