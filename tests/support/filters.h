// Files of filters for tests.
#pragma once

#include <string>

#include "model/model.h"
#include "policy/filters.h"
#include "policy/methods.h"

namespace winnow::test {

policy::FilterShape filter_shape(const model::Model& model);

// Random directions of length 1.
policy::Filters random_filters(const policy::FilterShape& shape, uint32_t seed = 1);

// Writes them to a file in the temporary folder and returns its path.
std::string write_filters(const policy::Filters& filters);

// What a method's spec must have for layers of this shape, beside its budget: ",filters=PATH", or nothing. All heads have the
// same filter, so that they are alike.
std::string own_options(const policy::Method& method, const policy::FilterShape& shape);
std::vector<policy::GivenOption> given_options(const policy::Method& method,
                                               const policy::FilterShape& shape);

}  // namespace winnow::test
