// qfilters@keysvd: keep the rows whose keys reach farthest along the direction that the first keys spread most in.
//
// Source    VeloxQuant-MLX's fallback where no filters were calibrated; an adaptation of Godey et al., 2025, arXiv 2503.02812
// Score     s(h, i) = sign · k(h, i) · u(h)                                         (1)
// Symbols   h = KV head, i = slot, k = key after rotation, u = first eigenvector of the covariance of the first calib_tokens
//           keys, with a positive element where the largest is (KeyDirections)
// Needs     keys, and that direction, found once; no file, values, queries or attention weights
// Cost      reads each visible key; scratch of 4 bytes a row
// Differs   u is of the first calib_tokens keys, so that it does not depend on how a prompt was cut. calib=block takes all
//           keys that are there when calib_tokens have come, as the source does
//
// Nothing is evicted before calib_tokens keys were seen, so heads may hold so many rows beyond a smaller budget. The sign of
// a direction of keys is not known: whether the rows that it prefers draw more attention or less is an accident.

#include <cstddef>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/key_directions.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct KeySvdOptions {
  int calib_tokens = 128;
  std::string calib = "first";
  std::string sign = "1";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(calib_tokens, "calib_tokens", 2, 1 << 20, "keys that the direction is found from");
    v(calib, "calib", {"first", "block"},
      "exactly the first calib_tokens keys, or all that are there once there are so many");
    v(sign, "sign", {"1", "-1"}, "-1 keeps the opposite rows");
  }
};

class KeySvd final : public Scorer {
 public:
  explicit KeySvd(const KeySvdOptions& options)
      : sample_({.n_keys = options.calib_tokens, .takes_block = options.calib == "block"}),
        sign_(options.sign == "1" ? 1.0F : -1.0F) {}

  Needs needs() const override { return {.keys = true, .key_sample = sample_}; }
  bool is_ready(const LayerView& layer) const override {
    return layer.key_directions->is_frozen(layer.layer);
  }

  // rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> worth = scratch.take<float>(slots.size());
    kernels::row_dots(kernels::keys_of(rows), slots,
                      layer.key_directions->direction(layer.layer, kv_head), worth, scratch);
    score_visible(slots, worth, sign_, scores);  // Eq. (1)
  }

 private:
  KeySample sample_;
  float sign_;
};

}  // namespace

std::unique_ptr<Scorer> make_qfilters_keysvd(OptionReader& reader) {
  return std::make_unique<KeySvd>(read_options<KeySvdOptions>(reader));
}

}  // namespace winnow::policy
