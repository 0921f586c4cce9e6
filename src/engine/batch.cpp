#include "engine/batch.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "engine/admission.h"

namespace winnow::engine {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::kInvalidArgument, reason);
}

}  // namespace

Batch::Batch(Engine& engine, const BatchLimits& limits) : engine_(engine), limits_(limits) {
  const int n_batch = engine.options().n_batch;
  if (limits.n_sequences < 1) {
    refuse("a batch of " + std::to_string(limits.n_sequences) + " sequences; at least 1 is needed");
  }
  if (limits.n_tokens < limits.n_sequences || limits.n_tokens > n_batch) {
    refuse("steps of " + std::to_string(limits.n_tokens) + " tokens; a batch of " +
           std::to_string(limits.n_sequences) + " sequences on this engine can have " +
           std::to_string(limits.n_sequences) + " … " + std::to_string(n_batch));
  }
}

void Batch::add(Sequence& sequence, std::span<const Token> prompt, PromptEviction eviction) {
  if (contains(sequence)) {
    refuse("the sequence is in the batch already");
  }
  if (n_sequences() == limits_.n_sequences) {
    refuse("the batch has " + std::to_string(n_sequences()) + " sequences, its most");
  }
  if (eviction == PromptEviction::kLegacyOrder) {
    refuse("prompts are not read in legacy order in a batch");
  }
  if (sequence.policy.needs().replay.is_wanted() && !prompt.empty() &&
      eviction != PromptEviction::kNever) {
    refuse("policy '" + sequence.policy.spec() +
           "' has documents replayed before rows go, which a batch does not do");
  }
  check_admissible(sequence,
                   {.n_tokens = static_cast<int>(prompt.size()),
                    .n_batch = engine_.options().n_batch,
                    .is_cut = eviction == PromptEviction::kPerChunk,
                    .is_ragged = true},
                   engine_.model().hyper());
  check_tokens(prompt, engine_.model().hyper().n_vocab);
  members_.push_back({.sequence = &sequence,
                      .prompt = {prompt.begin(), prompt.end()},
                      .eviction = eviction,
                      .positions_fed = sequence.positions_fed,
                      .next = {}});
}

void Batch::push(Sequence& sequence, Token token) {
  Member* const member = find(sequence);
  if (member == nullptr) {
    refuse("the sequence is not in the batch");
  }
  if (member->n_unread() > 0) {
    refuse("the sequence is still reading its prompt (" + std::to_string(member->n_read) + " of " +
           std::to_string(member->prompt.size()) + " tokens); it has no next token yet");
  }
  if (member->next) {
    refuse("the sequence has token " + std::to_string(*member->next) +
           " to decode already; a step comes first");
  }
  check_admissible(sequence, {.n_tokens = 1, .n_batch = 1}, engine_.model().hyper());
  check_tokens({&token, 1}, engine_.model().hyper().n_vocab);
  member->next = token;
}

void Batch::remove(const Sequence& sequence) {
  const Member* const member = find(sequence);
  if (member == nullptr) {
    refuse("the sequence is not in the batch");
  }
  members_.erase(members_.begin() + (member - members_.data()));
}

Batch::Member* Batch::find(const Sequence& sequence) {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.sequence == &sequence;
  });
  return found == members_.end() ? nullptr : &*found;
}

bool Batch::contains(const Sequence& sequence) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.sequence == &sequence; });
}

bool Batch::has_work() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.next || member.n_unread() > 0; });
}

// The next at most n_most unread tokens. A piece ends where the prompt is cut: always after so many of its tokens, so
// that no neighbour changes what is kept.
StepInput Batch::prompt_piece(const Member& member, int n_most) const {
  int n_tokens = std::min(n_most, member.n_unread());
  const bool is_cut_per_chunk = member.eviction == PromptEviction::kPerChunk;
  const int n_batch = engine_.options().n_batch;
  if (is_cut_per_chunk) {
    n_tokens = std::min(n_tokens, n_batch - member.n_read % n_batch);
  }
  const bool is_end = n_tokens == member.n_unread();
  const bool is_chunk_end = is_cut_per_chunk && (member.n_read + n_tokens) % n_batch == 0;
  Cut cut = is_chunk_end ? Cut::kIfDue : Cut::kNever;
  if (is_end && member.eviction != PromptEviction::kNever) {
    cut = Cut::kAlways;
  }
  return {.sequence = member.sequence,
          .tokens = std::span(member.prompt)
                        .subspan(static_cast<size_t>(member.n_read), static_cast<size_t>(n_tokens)),
          .is_prompt = true,
          .wants_logits = is_end,
          .cut = cut};
}

std::span<const Batch::NextLogits> Batch::step() {
  next_.clear();
  int n_free = limits_.n_tokens;  // for prompts
  for (const Member& member : members_) {
    if (member.sequence->is_usable && member.sequence->positions_fed != member.positions_fed) {
      refuse("a sequence of the batch had been fed " + std::to_string(member.positions_fed) +
             " positions and has " + std::to_string(member.sequence->positions_fed) +
             " now; only the batch may feed it");
    }
    n_free -= member.next ? 1 : 0;
  }
  std::vector<StepInput> inputs;
  std::vector<Member*> stepping;
  for (Member& member : members_) {
    if (member.next) {
      inputs.push_back({.sequence = member.sequence, .tokens = {&*member.next, 1}});
    } else if (member.n_unread() > 0 && n_free > 0) {
      inputs.push_back(prompt_piece(member, n_free));
      n_free -= static_cast<int>(inputs.back().tokens.size());
    } else {
      continue;
    }
    stepping.push_back(&member);
  }
  engine_.step(inputs, logits_);
  std::span<const float> rest(logits_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Member& member = *stepping[i];
    member.positions_fed = member.sequence->positions_fed;
    if (member.next) {
      member.next.reset();
    } else {
      member.n_read += static_cast<int>(inputs[i].tokens.size());
    }
    if (member.n_unread() == 0) {
      member.prompt = {};
      member.n_read = 0;
      const auto n_vocab = static_cast<size_t>(engine_.model().hyper().n_vocab);
      next_.push_back({member.sequence, rest.first(n_vocab)});
      rest = rest.subspan(n_vocab);
    }
  }
  return next_;
}

}  // namespace winnow::engine
