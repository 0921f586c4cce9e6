// What computing takes, counted from shapes and rows: bytes that decoding reads, operations that a prompt does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/cache.h"
#include "model/model.h"

namespace winnow::engine {

// Elements and bytes of all tensors of the file.
int64_t n_params(const model::Model& model);
size_t tensor_bytes(const model::Model& model);

// Weights that one decoding step reads, however many sequences it is for: all but embeddings that are not the output
// matrix as well, of which a token reads one row.
size_t step_weight_bytes(const model::Model& model);

// Rows that the next token of a sequence reads: those its cache holds, and its own.
size_t attended_bytes(const cache::Cache& cache);

// Operations of feeding `n_tokens` to a sequence that holds what `cache` holds, with the logits of the last: two for
// every weight of a layer and every token, four for every element of a query and every row it attends to, two for
// every weight of the output matrix.
double prompt_operations(const model::Model& model, const cache::Cache& cache, int n_tokens);

}  // namespace winnow::engine
