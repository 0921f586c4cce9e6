// winnow methods --markdown: the document that lists all parts of a policy.

#include "base/files.h"
#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

// After a change of any part: winnow methods --markdown > docs/methods.md
TEST(MethodsDocument, IsWhatTheProgramPrints) {
  const Outcome outcome = run_winnow({"methods", "--markdown"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, read_text_file(WINNOW_SOURCE_FOLDER "/docs/methods.md"));
}

TEST(MethodsDocument, IsNotPrintedAsJsonToo) {
  expect_refused(run_winnow({"methods", "--markdown", "--json"}), kInvalidArgument, {"--json"});
}

}  // namespace
}  // namespace winnow::test
