#include "calibrate/checkpoint.h"

#include <climits>
#include <filesystem>

#include "base/error.h"
#include "base/section_file.h"

namespace winnow::calibrate {
namespace {

constexpr SectionFormat kFormat{.magic = {'w', 'i', 'n', 'n', 'o', 'w', 'q', 'f'},
                                .version = 1,
                                .name = "unfinished calibration"};

}  // namespace

int Checkpoint::load(QueryStatistics& statistics, kernels::QueryMoments& moments) const {
  if (path_.empty() || !std::filesystem::exists(path_)) {
    return 0;
  }
  SectionFile file(path_, kFormat);
  SectionReader state = file.read("state");
  if (state.get_text() != identity_) {
    throw Error(ErrorCode::kInvalidArgument,
                "'" + path_ +
                    "' is what is left of another calibration: remove it, or calibrate as it was "
                    "begun");
  }
  const int n_passages = state.get_int("passages", 1, INT_MAX);
  const auto fill = [&](auto to) {
    const auto values = state.get_array<typename decltype(to)::value_type>(to.size());
    std::ranges::copy(values, to.begin());
  };
  fill(statistics.tokens_of_blocks());
  for (const std::span<double> sums : statistics.sums()) {
    fill(sums);
  }
  fill(statistics.samples());
  for (int layer = 0; layer < statistics.shape().heads.n_layers; ++layer) {
    if (moments.watches(layer)) {
      fill(moments.counts(layer));
      fill(moments.sums(layer));
    }
  }
  state.expect_end();
  statistics.go_on();
  return n_passages;
}

void Checkpoint::save(QueryStatistics& statistics, kernels::QueryMoments& moments,
                      int n_passages) const {
  if (path_.empty()) {
    return;
  }
  SectionWriter file;
  file.begin("state");
  file.put_text(identity_);
  file.put(int32_t{n_passages});
  file.refer(std::as_bytes(statistics.tokens_of_blocks()));
  for (const std::span<double> sums : statistics.sums()) {
    file.refer(std::as_bytes(sums));
  }
  file.refer(std::as_bytes(statistics.samples()));
  for (int layer = 0; layer < statistics.shape().heads.n_layers; ++layer) {
    if (moments.watches(layer)) {
      file.refer(std::as_bytes(moments.counts(layer)));
      file.refer(std::as_bytes(moments.sums(layer)));
    }
  }
  file.write(path_, kFormat);
}

void Checkpoint::remove() const {
  if (!path_.empty()) {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
}

}  // namespace winnow::calibrate
