// The files of share/report and plotly.min.js, as they were when this program was built.
#pragma once

#include <string_view>

namespace winnow::eval {

std::string_view report_template();  // page.html
std::string_view report_style();     // page.css
std::string_view report_script();    // the .js files, one after the other
std::string_view plotly_script();    // empty where there was none

}  // namespace winnow::eval
