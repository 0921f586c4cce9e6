// Looks tensors of a file up by name, checks them and remembers which were asked for.
#pragma once

#include <string>
#include <unordered_set>

#include "ggml.h"
#include "model/gguf_file.h"

namespace winnow::model {

// Shapes are in ggml's order, fastest first. All throw bad_data for a wrong shape and unsupported for a wrong type; the
// find_ functions return null for a tensor that is not there, the others throw bad_data.
class TensorLookup {
 public:
  explicit TensorLookup(const GgufFile& file) : file_(file) {}

  ggml_tensor* matrix(const std::string& name, int64_t n_in, int64_t n_out);
  ggml_tensor* find_matrix(const std::string& name, int64_t n_in, int64_t n_out);
  ggml_tensor* vector(const std::string& name, int64_t n);
  ggml_tensor* find_vector(const std::string& name, int64_t n);
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  // A tensor that nobody asked for belongs to a variant of the family that would be computed wrongly.
  void expect_all_used(std::string_view architecture) const;

 private:
  ggml_tensor* required(const std::string& name, ggml_tensor* tensor) const;
  ggml_tensor* find(const std::string& name, int64_t n_in, int64_t n_out);

  const GgufFile& file_;
  std::unordered_set<std::string> used_;
};

}  // namespace winnow::model
