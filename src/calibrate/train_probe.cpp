#include "calibrate/train_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace winnow::calibrate {
namespace {

using engine::RoleProbe;
using engine::RoleScores;
using roles::kRoles;
using roles::PerRole;
using roles::Role;

constexpr float kRate = 0.5F;  // of AdaGrad
constexpr float kDecay = 1e-5F;

struct Place {
  uint32_t text;
  uint32_t token;
};

std::vector<Place> places_of(std::span<const ProbeText> texts) {
  std::vector<Place> places;
  for (size_t text = 0; text < texts.size(); ++text) {
    for (size_t token = 0; token < texts[text].tokens.size(); ++token) {
      places.push_back({static_cast<uint32_t>(text), static_cast<uint32_t>(token)});
    }
  }
  return places;
}

void shuffle(std::vector<Place>& places, uint64_t seed) {
  for (size_t n = places.size(); n > 1; --n) {
    std::swap(places[n - 1], places[splitmix64(seed + n) % n]);
  }
}

// In place: z to the softmax of z.
void softmax(PerRole<float>& z) {
  const float most = *std::ranges::max_element(z);
  float sum = 0;
  for (float& each : z) {
    each = std::exp(each - most);
    sum += each;
  }
  for (float& each : z) {
    each /= sum;
  }
}

}  // namespace

ProbeText probe_document(const model::Vocabulary& vocabulary, std::string_view text,
                         const roles::Format& format) {
  ProbeText labelled{
      .tokens = vocabulary.tokenize(text, model::SpecialText::kPlain), .features = {}, .roles = {}};
  labelled.features =
      engine::block_features(text, model::byte_ranges(vocabulary, text, labelled.tokens));
  labelled.roles = engine::token_roles(vocabulary, text, labelled.tokens, format);
  return labelled;
}

ProbeText probe_question(const model::Vocabulary& vocabulary, std::string_view text) {
  ProbeText labelled{
      .tokens = vocabulary.tokenize(text, model::SpecialText::kPlain), .features = {}, .roles = {}};
  labelled.features =
      engine::block_features(text, model::byte_ranges(vocabulary, text, labelled.tokens),
                             /*is_question=*/true);
  labelled.roles.assign(labelled.tokens.size(), Role::kProse);
  return labelled;
}

RoleProbe train_probe(const model::Vocabulary& vocabulary, std::span<const ProbeText> texts,
                      bool has_block_features, const ProbeTraining& training) {
  std::vector<model::Token> seen;
  for (const ProbeText& text : texts) {
    seen.insert(seen.end(), text.tokens.begin(), text.tokens.end());
  }
  RoleProbe probe(vocabulary, seen, has_block_features);
  const std::span<RoleScores> weights = probe.weights();
  std::vector<RoleScores> squares(weights.size());  // of all gradients so far
  std::vector<Place> places = places_of(texts);
  for (int pass = 0; pass < training.n_passes; ++pass) {
    shuffle(places, splitmix64(training.seed * 1000 + static_cast<uint64_t>(pass)));
    for (const auto& [text_index, token] : places) {
      const ProbeText& text = texts[text_index];
      const RoleProbe::Active active = probe.active(text.tokens, text.features, token);
      const std::span<const uint32_t> rows = std::span(active.rows).first(active.n);
      PerRole<float> gradient{};  // of z
      for (const uint32_t row : rows) {
        for (size_t r = 0; r < kRoles; ++r) {
          gradient[r] += weights[row][r];
        }
      }
      softmax(gradient);
      gradient[index(text.roles[token])] -= 1;
      for (const uint32_t row : rows) {
        for (size_t r = 0; r < kRoles; ++r) {
          const float slope = gradient[r] + kDecay * weights[row][r];
          squares[row][r] += slope * slope;
          weights[row][r] -= kRate * slope / std::sqrt(squares[row][r] + 1e-8F);
        }
      }
    }
  }
  return probe;
}

double ProbeQuality::accuracy() const {
  return n_tokens == 0 ? 1 : static_cast<double>(n_right) / static_cast<double>(n_tokens);
}

double ProbeQuality::f1(Role role) const {
  const size_t r = index(role);
  const int64_t n = n_said[r] + n_there[r];
  return n == 0 ? 1 : 2 * static_cast<double>(n_both[r]) / static_cast<double>(n);
}

ProbeQuality judge_probe(const RoleProbe& probe, std::span<const ProbeText> texts) {
  ProbeQuality quality;
  for (const ProbeText& text : texts) {
    const std::vector<Role> said = probe.label(text.tokens, text.features);
    for (size_t i = 0; i < said.size(); ++i) {
      ++quality.n_said[index(said[i])];
      ++quality.n_there[index(text.roles[i])];
      quality.n_both[index(said[i])] += said[i] == text.roles[i] ? 1 : 0;
      quality.n_right += said[i] == text.roles[i] ? 1 : 0;
    }
    quality.n_tokens += std::ssize(said);
  }
  return quality;
}

}  // namespace winnow::calibrate
