// Trains probes (engine/role_probe.h) on texts that labellers have labelled, and judges them on others.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/role_probe.h"
#include "engine/token_roles.h"

namespace winnow::calibrate {

// A document, or a question about one, whose tokens are all PROSE.
struct ProbeText {
  std::vector<model::Token> tokens;
  std::vector<engine::BlockFeatures> features;  // [tokens.size()]
  std::vector<roles::Role> roles;               // [tokens.size()]
};

// Throws what model::byte_ranges throws.
ProbeText probe_document(const model::Vocabulary& vocabulary, std::string_view text,
                         const roles::Format& format);
ProbeText probe_question(const model::Vocabulary& vocabulary, std::string_view text);

struct ProbeTraining {
  int n_passes = 10;  // over all tokens
  uint64_t seed = 0;  // of the order of tokens
};

// Minimises the mean cross-entropy of the roles, token by token in an order drawn anew for each pass.
engine::RoleProbe train_probe(const model::Vocabulary& vocabulary, std::span<const ProbeText> texts,
                              bool has_block_features, const ProbeTraining& training);

// What a probe says of tokens, against what labellers say.
struct ProbeQuality {
  int64_t n_tokens = 0;
  int64_t n_right = 0;
  roles::PerRole<int64_t> n_said = {};   // by the probe
  roles::PerRole<int64_t> n_there = {};  // by the labeller
  roles::PerRole<int64_t> n_both = {};   // by both of the same token

  double accuracy() const;            // 1 of no tokens
  double f1(roles::Role role) const;  // 1 where neither says the role
};

ProbeQuality judge_probe(const engine::RoleProbe& probe, std::span<const ProbeText> texts);

}  // namespace winnow::calibrate
