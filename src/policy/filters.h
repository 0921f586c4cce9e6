// The directions that Q-Filters scores keys along, and the file that holds them: `winnow calibrate` writes it, policies read
// it (docs/qfilters.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/score_directions.h"

namespace winnow::policy {

// Whose keys the filters are directions for: of queries after or before rotation. The third takes filters from before
// rotation for keys after it, which fits neither and is there to repeat what has been published.
enum class FilterFrame { kPost, kPre, kLegacy };

const char* filter_frame_name(FilterFrame frame);  // "post", "pre", "legacy"

struct FilterShape {
  int n_layers = 0;
  int n_heads = 0;  // query heads
  int n_kv_heads = 0;
  int head_dim = 0;

  bool operator==(const FilterShape&) const = default;
};

struct Filters {
  FilterShape shape;
  FilterFrame frame = FilterFrame::kPost;
  bool is_normalized = true;  // all have length 1; else they may be shorter, as means of a group
  std::vector<float> directions = {};  // [n_layers, n_kv_heads, head_dim]
  // [n_layers, n_kv_heads]: the group's filters cancel each other, or none could be found. Its direction means nothing.
  std::vector<bool> is_guarded = {};
  // [n_layers, n_kv_heads]: the lower end of an interval for the mean projection of queries that the filters were not fitted
  // to; at most 0 where the direction is not one of those queries. Empty: not known.
  std::vector<float> kappa_low = {};
  // [n_layers, n_kv_heads]: Spearman's correlation of keys' projections with the attention that they received; NaN where it was
  // not measured. Empty: nowhere.
  std::vector<float> correlation = {};
  // Of the queries before rotation, where the file has them: their means [n_layers, n_heads, head_dim] and covariances [n_layers,
  // n_heads, head_dim, head_dim].
  std::vector<float> query_means = {};
  std::vector<float> query_covariances = {};
  std::string model = {};  // the architecture, for messages
  std::string fingerprint =
      {};  // model::fingerprint(); empty: they come from queries that the user brought
  std::vector<uint64_t> text_hashes = {};  // of some stretches of the text: text_stretches()

  std::span<const float> direction(int layer, int kv_head) const {
    return std::span(directions).subspan(index(layer, kv_head) * dim(), dim());
  }
  bool guarded(int layer, int kv_head) const { return is_guarded[index(layer, kv_head)]; }
  bool has_query_moments() const { return !query_covariances.empty(); }
  // Whether keys before rotation are meant by anything in it.
  bool needs_rotation() const { return frame == FilterFrame::kPre || has_query_moments(); }
  std::span<const float> query_mean(int layer, int head) const {
    return std::span(query_means).subspan(query_index(layer, head) * dim(), dim());
  }
  std::span<const float> query_covariance(int layer, int head) const {
    return std::span(query_covariances)
        .subspan(query_index(layer, head) * dim() * dim(), dim() * dim());
  }

 private:
  size_t dim() const { return static_cast<size_t>(shape.head_dim); }
  size_t index(int layer, int kv_head) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(shape.n_kv_heads) +
           static_cast<size_t>(kv_head);
  }
  size_t query_index(int layer, int head) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(shape.n_heads) +
           static_cast<size_t>(head);
  }
};

// What keys are projected on, in all heads but those for which is_guarded [n_layers, n_kv_heads] says otherwise.
kernels::ScoreDirections score_directions(const Filters& filters,
                                          const std::vector<bool>& is_guarded);

// What else the file says, for people: results never depend on it.
struct FilterNotes {
  std::string model_id = {};
  int64_t n_samples = 0;     // queries per head
  std::string dataset = {};  // names of the texts
  std::string json = {};     // an object of whatever else
  // Arrays [shape] of float32.
  struct Array {
    std::string name;
    std::vector<size_t> shape;
    std::vector<float> values;
  };
  std::vector<Array> arrays = {};
};

// The content of such a file. Throws resource_exhausted.
std::string format_filters(const Filters& filters, const FilterNotes& notes);

// `path` is what messages call it. Throws what NpzFile throws, bad_data (no such file, a part of it is missing, of another
// shape or not finite, a direction that has not length 1), or unsupported (another version, frame or element type).
Filters parse_filters(std::span<const std::byte> file, const std::string& path);

// Hashes of about one in 32 of all stretches of 13 tokens, ascending, each once: two texts that share a long passage share
// some of them.
std::vector<uint64_t> text_stretches(std::span<const int32_t> tokens);

// The share of `stretches` that are among the ascending `known`; 0 where there are none.
double shared_stretches(std::span<const uint64_t> stretches, std::span<const uint64_t> known);

}  // namespace winnow::policy
