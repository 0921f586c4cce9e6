// What has been summed up so far, in a file, so that reading that was interrupted goes on where it was.
#pragma once

#include <string>

#include "calibrate/query_statistics.h"

namespace winnow::calibrate {

class Checkpoint {
 public:
  // No path: nothing is ever saved. `identity` tells apart all that sums depend on.
  Checkpoint(std::string path, std::string identity)
      : path_(std::move(path)), identity_(std::move(identity)) {}

  // Fills statistics and moments of the same shapes, and returns how many passages they are of: 0 where there is no file. Throws
  // invalid_argument where the file is of another calibration, and what SectionFile throws.
  int load(QueryStatistics& statistics, kernels::QueryMoments& moments) const;
  // Throws io.
  void save(QueryStatistics& statistics, kernels::QueryMoments& moments, int n_passages) const;
  void remove() const;

 private:
  std::string path_;
  std::string identity_;
};

}  // namespace winnow::calibrate
