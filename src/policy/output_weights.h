// The matrix that a layer's attention output is multiplied with, as policies read it.
#pragma once

namespace winnow::policy {

// W_O [n_embd, n_heads * head_dim] of each layer, as floats. Read from several threads at the same time.
class OutputWeights {
 public:
  virtual ~OutputWeights() = default;

  virtual int n_embd() const = 0;
  // A part of a layer's matrix: n_rows rows from first_row on, and of those n_columns columns from first_column on, to
  // `to` [n_rows, n_columns].
  struct Part {
    int first_row;
    int n_rows;
    int first_column;
    int n_columns;
  };
  virtual void read(int layer, const Part& part, float* to) const = 0;
};

}  // namespace winnow::policy
