#include "eval/report_page.h"

#include "base/error.h"
#include "eval/report_assets.h"

namespace winnow::eval {
namespace {

std::string_view asset(std::string_view name, const std::string& title, const std::string& data) {
  if (name == "title") {
    return title;
  }
  if (name == "data") {
    return data;
  }
  if (name == "style") {
    return report_style();
  }
  if (name == "plotly") {
    return plotly_script();
  }
  WINNOW_CHECK(name == "script");
  return report_script();
}

}  // namespace

bool has_plotly() {
  return !plotly_script().empty();
}

void check_has_plotly() {
  if (!has_plotly()) {
    throw Error(ErrorCode::kUnsupported,
                "this winnow was built without plotly.min.js, which draws a report's figures: run "
                "scripts/setup, or configure with -DWINNOW_PLOTLY=FILE, and build it again");
  }
}

std::string html_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string script_json(const nlohmann::ordered_json& data) {
  const std::string text =
      data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {  // stands in strings only
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string report_page(const nlohmann::ordered_json& data) {
  check_has_plotly();
  const std::string title = html_text(data.at("title").get<std::string>());
  const std::string json = script_json(data);
  std::string page;
  std::string_view rest = report_template();
  while (!rest.empty()) {
    const size_t open = rest.find("{{");
    page += rest.substr(0, open);
    if (open == std::string_view::npos) {
      break;
    }
    const size_t close = rest.find("}}", open);
    WINNOW_CHECK(close != std::string_view::npos);
    page += asset(rest.substr(open + 2, close - open - 2), title, json);
    rest.remove_prefix(close + 2);
  }
  return page;
}

}  // namespace winnow::eval
