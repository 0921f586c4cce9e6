#include "model/tensor_lookup.h"

#include <algorithm>

#include "ggml-cpu.h"

namespace winnow::model {
namespace {

// What ggml's CPU backend can multiply with and look rows up in.
bool is_matrix_type(ggml_type type) {
  if (type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16) {
    return true;
  }
  return ggml_is_quantized(type) && ggml_get_type_traits(type)->to_float != nullptr &&
         ggml_get_type_traits_cpu(type)->vec_dot != nullptr;
}

std::string shape(std::span<const int64_t> ne) {
  std::string text;
  for (const int64_t n : ne) {
    text += (text.empty() ? "[" : ", ") + std::to_string(n);
  }
  return text + "]";
}

std::string where(const std::string& name) {
  return "tensor '" + name + "' ";
}

}  // namespace

ggml_tensor* TensorLookup::matrix(const std::string& name, int64_t n_in, int64_t n_out) {
  return required(name, find_matrix(name, n_in, n_out));
}

ggml_tensor* TensorLookup::find_matrix(const std::string& name, int64_t n_in, int64_t n_out) {
  ggml_tensor* tensor = find(name, n_in, n_out);
  if (tensor != nullptr && !is_matrix_type(tensor->type)) {
    file_.throw_unsupported(
        where(name) + "is of type '" + ggml_type_name(tensor->type) +
        "' (supported: f32, f16, bf16 and quantised types that ggml multiplies)");
  }
  return tensor;
}

ggml_tensor* TensorLookup::vector(const std::string& name, int64_t n) {
  return required(name, find_vector(name, n));
}

ggml_tensor* TensorLookup::find_vector(const std::string& name, int64_t n) {
  ggml_tensor* tensor = find(name, n, 1);
  if (tensor != nullptr && tensor->type != GGML_TYPE_F32) {
    file_.throw_unsupported(where(name) + "is of type '" + ggml_type_name(tensor->type) +
                            "' (supported: f32)");
  }
  return tensor;
}

void TensorLookup::expect_all_used(std::string_view architecture) const {
  for (const ggml_tensor* tensor : file_.tensors()) {
    if (!used_.contains(tensor->name)) {
      file_.throw_unsupported("tensor " + quoted(tensor->name) + " has no place in the family '" +
                              std::string(architecture) + "'");
    }
  }
}

ggml_tensor* TensorLookup::required(const std::string& name, ggml_tensor* tensor) const {
  if (tensor == nullptr) {
    file_.throw_damaged(where(name) + "is missing");
  }
  return tensor;
}

ggml_tensor* TensorLookup::find(const std::string& name, int64_t n_in, int64_t n_out) {
  used_.insert(name);
  ggml_tensor* tensor = file_.find_tensor(name);
  if (tensor == nullptr) {
    return nullptr;
  }
  const int64_t expected[GGML_MAX_DIMS] = {n_in, n_out, 1, 1};
  if (!std::equal(std::begin(expected), std::end(expected), tensor->ne)) {
    file_.throw_damaged(where(name) + "has the shape " + shape(tensor->ne) +
                        " (expected: " + shape(expected) + ")");
  }
  return tensor;
}

}  // namespace winnow::model
