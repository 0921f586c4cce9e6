// random: keep rows at random, the floor that any other method has to beat.
//
// Source    none; the usual control arm
// Score     s(h, i) = hash(seed, l, h, p(h, i)), uniform on [0, 1)                  (1)
// Symbols   l = layer, h = KV head, i = slot, p = position
// Needs     positions; no keys, values, queries or attention weights
// Cost      4 bytes a row; no scratch
// Differs   a hash and not a generator: a row draws the same number whenever and on whatever thread it is asked,
//           so the choice does not depend on how the input was cut

#include <cstddef>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

struct RandomOptions {
  int seed = 0;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(seed, "seed", 0, std::numeric_limits<int>::max(), "another seed keeps other rows");
  }
};

class Random final : public Scorer {
 public:
  explicit Random(const RandomOptions& options) : options_(options) {}

  Needs needs() const override { return {}; }
  bool may_be_negative() const override { return false; }

  // rows.positions [n_cached] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& /*scratch*/,
             std::span<float> scores) const override {
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const uint64_t head_hash = hash_with(
        hash_with(splitmix64(static_cast<uint32_t>(options_.seed)), layer.layer), kv_head);
    for (size_t i = 0; i < scores.size(); ++i) {
      const uint64_t hash = hash_with(head_hash, rows.positions[i]);  // Eq. (1)
      scores[i] = static_cast<float>(hash >> 40) * 0x1p-24F;  // 24 bits: every value is exact
    }
  }

 private:
  RandomOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_random(OptionReader& reader) {
  return std::make_unique<Random>(read_options<RandomOptions>(reader));
}

}  // namespace winnow::policy
