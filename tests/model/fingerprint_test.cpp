#include "model/fingerprint.h"

#include <gtest/gtest.h>

#include "gguf.h"
#include "support/tiny_model.h"

namespace winnow::model {
namespace {

std::string fingerprint_of(const test::TinyModelOptions& options) {
  return fingerprint(GgufFile(test::write_tiny_model(options)));
}

TEST(Fingerprint, IsOfTheContentAlone) {
  const std::string first = fingerprint_of({});
  EXPECT_EQ(first.size(), 16U);
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), std::string::npos) << first;
  EXPECT_EQ(fingerprint_of({}), first);  // another file of the same bytes
}

TEST(Fingerprint, ChangesWithWeightsAndKeys) {
  const std::string first = fingerprint_of({});
  EXPECT_NE(fingerprint_of({.seed = 2}), first);
  EXPECT_NE(fingerprint_of({.n_ctx_train = 4097}), first);
  EXPECT_NE(fingerprint_of({.matrix_type = GGML_TYPE_F16}), first);
  test::TinyModelOptions named;
  named.edit = [](gguf_context* g) { gguf_set_val_str(g, "general.name", "another"); };
  EXPECT_NE(fingerprint_of(named), first);
}

}  // namespace
}  // namespace winnow::model
