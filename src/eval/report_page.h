// A report as one HTML file that needs nothing else: template, styles, scripts, plotly.js and the numbers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace winnow::eval {

// Whether this program was built with plotly.js, without which there is no page.
bool has_plotly();
// Throws unsupported where it was not.
void check_has_plotly();

// `data`: what report_data() gives. Throws what check_has_plotly() does.
std::string report_page(const nlohmann::ordered_json& data);

// Text that is to stand in HTML, outside of attributes or in quoted ones.
std::string html_text(std::string_view text);

// JSON that is to stand in a script element: no string in it can end the element.
std::string script_json(const nlohmann::ordered_json& data);

}  // namespace winnow::eval
