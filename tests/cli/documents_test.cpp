// Documents that say what the code is: none may be stale.

#include <filesystem>
#include <regex>

#include "base/files.h"
#include "cli/winnow_program.h"

namespace winnow::test {
namespace {

namespace fs = std::filesystem;

std::string document_text(const std::string& file) {
  return read_text_file(WINNOW_SOURCE_FOLDER "/docs/" + file);
}

// After a change of any part: winnow methods --markdown > docs/methods.md
TEST(MethodsDocument, IsWhatTheProgramPrints) {
  const Outcome outcome = run_winnow({"methods", "--markdown"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, document_text("methods.md"));
}

TEST(MethodsDocument, IsNotPrintedAsJsonToo) {
  expect_refused(run_winnow({"methods", "--markdown", "--json"}), kInvalidArgument, {"--json"});
}

TEST(FaultsDocument, NamesTestsThatThereAre) {
  std::string sources;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(WINNOW_SOURCE_FOLDER) / "tests")) {
    if (entry.path().string().ends_with("_test.cpp")) {
      sources += read_text_file(entry.path());
    }
  }
  std::erase_if(sources, [](char c) { return c == ' ' || c == '\n'; });
  const std::string text = document_text("decisions/faults.md");
  const std::regex test_name("`([A-Z][A-Za-z0-9]*)\\.([A-Z][A-Za-z0-9]*)`");
  int n_names = 0;
  for (auto match = std::sregex_iterator(text.begin(), text.end(), test_name);
       match != std::sregex_iterator(); ++match, ++n_names) {
    const std::string name = match->str(1) + "," + match->str(2);
    EXPECT_NE(sources.find("(" + name + ")"), std::string::npos) << name;
  }
  EXPECT_GT(n_names, 40);
}

}  // namespace
}  // namespace winnow::test
