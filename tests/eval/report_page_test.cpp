// Nothing that stands in the results becomes part of the page's markup.

#include "eval/report_page.h"

#include <gtest/gtest.h>

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;

size_t n_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

TEST(ReportPage, EscapesTextAndJson) {
  EXPECT_EQ(html_text("<b a=\"1\">&amp;</b>"), "&lt;b a=&quot;1&quot;&gt;&amp;amp;&lt;/b&gt;");
  const ordered_json data = {{"a", "</script><!--<script>"}, {"b", "\xff"}, {"c", 0.1}};
  const std::string text = script_json(data);
  EXPECT_EQ(text.find('<'), std::string::npos) << text;
  EXPECT_EQ(ordered_json::parse(text)["a"], data["a"]);
  EXPECT_EQ(ordered_json::parse(text)["c"], data["c"]);
}

TEST(ReportPage, TakesTitleAndDataAsText) {
  if (!has_plotly()) {
    GTEST_SKIP() << "built without plotly.min.js; scripts/setup gets it";
  }
  const auto page = [](const std::string& title) {
    return report_page({{"title", title}, {"answer", title}});
  };
  const std::string harmless = page("plain {{data}}");
  const std::string hostile = page("</title></script><script>alert(1)</script>{{style}}<!--");
  EXPECT_EQ(n_of(hostile, "</script>"), n_of(harmless, "</script>"));
  EXPECT_EQ(n_of(hostile, "<script"), n_of(harmless, "<script"));
  EXPECT_EQ(n_of(hostile, "</title>"), n_of(harmless, "</title>"));
  EXPECT_EQ(n_of(hostile, "<!--"), n_of(harmless, "<!--"));
  EXPECT_EQ(n_of(harmless, "{{data}}"), 4);  // twice as the title, twice in the data: not filled in
  EXPECT_LT(hostile.size(), 8'000'000);
}

}  // namespace
}  // namespace winnow::eval
