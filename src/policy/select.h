// Which rows are kept: the k best under one strict order, protected ones first.
#pragma once

#include <span>
#include <vector>

#include "base/scratch.h"

namespace winnow::policy {

// Slots [0, n_first) and [n - n_last, n) are kept whatever their score.
struct Protected {
  int n_first = 0;
  int n_last = 0;
};

// The slots of the n_keep rows that stay, ascending. Order of the others: score descending, slot ascending; -0 equals
// +0, infinities in their place, NaN below all. Exactly min(n_keep, n) slots; n_keep >= n_first + n_last.
std::vector<int> select(std::span<const float> scores, int n_keep, const Protected& keep_anyway);

// The same into `kept`, which keeps its memory from call to call. Returns how many of the scores that were compared are
// NaN: those of unprotected rows, where some have to go.
int select(std::span<const float> scores, int n_keep, const Protected& keep_anyway,
           Scratch& scratch, std::vector<int>& kept);

}  // namespace winnow::policy
