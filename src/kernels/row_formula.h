// What a row is worth, as a formula of what lies beside it: for rows that scorers do not reach, since they are in a device's memory.
#pragma once

namespace winnow::kernels {

// Of one method. Whoever evaluates it gets the scores of that method's Scorer::score(): the same bits of the same numbers.
struct RowFormula {
  enum class Of {
    kStaticScore,  // factor times the static score
    kColumnMass,   // the mean over the group's query heads of the weights received
    kLastQuery,    // the mean over the group's query heads of the weights that the last query gave
    kLastQueries  // the same of the last n_queries queries and of neighbouring rows, as snapkv says
  };

  Of of = Of::kStaticScore;
  float factor = 1;
  bool is_per_query = false;  // kColumnMass: divided by the number of queries since the row was fed
  // kLastQueries:
  int n_queries = 0;
  int pool_width = 1;                // rows that are pooled: the row and its neighbours
  bool pools_greatest = true;        // else their mean
  bool takes_greatest_head = false;  // else the mean over query heads
  bool pools_heads = false;          // query heads are put together before rows are pooled
  bool keeps_own_rows = true;        // those of the n_queries queries come before all others

  // Queries that must be remembered.
  int n_asked() const { return of == Of::kLastQueries ? n_queries : of == Of::kLastQuery ? 1 : 0; }
};

}  // namespace winnow::kernels
