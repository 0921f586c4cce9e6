// What is checked before tokens of a sequence are fed, so that a refusal changes nothing.
#pragma once

#include <span>

#include "engine/sequence.h"
#include "model/model.h"

namespace winnow::engine {

// "30 layers with 3 KV heads of 64", for messages.
std::string heads_text(int n_layers, int n_kv_heads, int head_dim);

// What is wrong where the policy scores by filters of other layers, heads or dimensions; empty where nothing is. `keys`: whose
// these numbers are, as in "the model has".
std::string filters_problem(const policy::Policy& policy, int n_layers, int n_kv_heads,
                            int head_dim, const char* keys);

// Throws where the policy does not suit the model: invalid_argument where it scores by filters that were made from another one,
// unsupported where it has documents replayed and layers have windows.
void check_suits(const policy::Policy& policy, const model::Model& model);

// How a sequence's next tokens come.
struct Arrival {
  int n_tokens;
  int n_batch;             // so many at once
  bool is_cut = false;     // back to the budget after each time, when slack is used up too
  bool has_slack = true;   // false: whenever there are more rows than the budget
  bool is_ragged = false;  // neighbours share the steps, so fewer than n_batch may come at once
};

// Throws invalid_argument: a sequence that is not usable, whose cache is not one for this model or for its own policy,
// whose policy is not resolved, or that has no room.
void check_admissible(const Sequence& sequence, const Arrival& arrival,
                      const model::Hyperparameters& hyper);

// Throws invalid_argument for a token beyond the vocabulary.
void check_tokens(std::span<const model::Token> tokens, int n_vocab);

}  // namespace winnow::engine
