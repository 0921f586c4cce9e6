// What attention pays to the roles of a document's tokens, and what a policy keeps of each.
#pragma once

#include <span>
#include <vector>

#include "eval/record.h"
#include "roles/role.h"

namespace winnow::eval {

// Column mass of one KV head, of the full cache: what the token at each position has received from all queries, in softmax
// weights, averaged over the head's query heads. All of it together is the number of tokens, since each query gives away 1.
using HeadMass = std::vector<double>;  // [n_positions]

struct DocumentRoles {
  int begin = 0;                   // the position of the document's first token
  std::vector<roles::Role> roles;  // of its tokens
};

class RoleDiagnosis {
 public:
  // mass [n_layers][n_kv_heads]; a layer whose queries see a window has no heads. All heads have the same positions, and the
  // document lies in them.
  RoleDiagnosis(DocumentRoles document, std::vector<std::vector<HeadMass>> mass);

  // Of the full cache, means over the heads; of the document's tokens:
  // mass.ROLE     mean mass of a token; 1 is the mean of all tokens
  // rest.ROLE     the same without position 0, where a document begins there
  // above10.ROLE  tokens with more than 10 times the mean, each head's counted
  // bottom.ROLE   share of the role's tokens in the quarter of the document that receives least
  // top.ROLE      in the one that receives most
  // first         mass of position 0
  // key_value     mass.KEY / mass.VALUE; `heads` have it of each
  // snr           mass of VALUE over that of DELIM and KEY
  // mass_error    the largest difference of a head's mean mass from 1
  // A role that the document has no token of has no metrics.
  void describe_mass(Record& record) const;

  // Of what a policy left of the prompt: kept.ROLE, the share of tokens that stayed, mean over the heads; kept.key_value; snr,
  // of what the full cache's queries paid to what stayed. positions [n_layers][n_kv_heads], ascending.
  void describe_kept(const std::vector<std::vector<std::vector<int>>>& positions,
                     Record& record) const;

 private:
  template <typename Body>
  void for_heads(const Body& body) const;

  DocumentRoles document_;
  std::vector<std::vector<HeadMass>> mass_;
  roles::PerRole<int> n_tokens_{};
  int n_heads_ = 0;  // that have mass
};

}  // namespace winnow::eval
