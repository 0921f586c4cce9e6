// winnow report: the page in a browser, and what it refuses.

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "cli/program_in_path.h"
#include "cli/winnow_program.h"
#include "eval/report_page.h"

namespace winnow::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The folder of an evaluation of the tiny model, with an answer that would end a script, and a corrupt line.
std::string results_folder() {
  static const std::string folder = [] {
    std::string path = temporary_path("report_results");
    const Outcome outcome =
        run_winnow({"eval", "niah", "-m", tiny_model(), "-t", "1", "--policy", "knorm;snapkv+adakv",
                    "--budgets", "10%;50%", "--question", "both", "--lengths", "400;600", "-n", "2",
                    "-q", "-o", path});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::string samples = read_text_file(path + "/samples.jsonl");
    const std::string key = "\"answers\":[\"";
    samples.insert(samples.find(key) + key.size(),
                   "</script><script>window.isHacked = true</script><img src=x>");
    write_file_atomically(path + "/samples.jsonl", samples + "{corrupt\n");
    return path;
  }();
  return folder;
}

// Draws everything, and writes what there is to see into the page. The console gets a line, so that its silence about
// all else means something.
constexpr const char* kProbe = R"js(<script>
console.error("the probe");
drawAll();
document.querySelectorAll("details").forEach(details => details.fill());
document.getElementById("theme").click();
document.querySelectorAll(".legend button:first-child").forEach(button => { button.click(); button.click(); });
for (const select of document.querySelectorAll("select")) {
  for (const place of [select.options.length - 1, 0]) {  // to the last choice and back
    select.selectedIndex = place;
    select.dispatchEvent(new Event("change"));
  }
}
const cells = row => [...row.children].map(cell => cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value));
const seen = {
  plots: document.querySelectorAll(".canvas").length,
  drawings: [...document.querySelectorAll(".canvas")].filter(plot => plot.querySelector(".cartesianlayer .trace, .cartesianlayer image")).length,
  titles: [...document.querySelectorAll("figcaption")].map(each => each.textContent),
  tables: [...document.querySelectorAll(".panel > .scroll table")].map(table => [...table.querySelectorAll("tbody tr")].map(cells)),
  figureTables: [...document.querySelectorAll("figure details table")].map(table => ({caption: table.caption.textContent, rows: [...table.querySelectorAll("tbody tr")].map(cells)})),
  warnings: document.querySelectorAll(".warnings li").length,
  theme: document.documentElement.dataset.theme,
  isHacked: window.isHacked === true || document.querySelectorAll("main img").length > 0,
  nRequests: performance.getEntriesByType("resource").length,
  isWiderThanWindow: document.documentElement.scrollWidth > innerWidth,
  ms: performance.now(),
};
document.body.replaceChildren(Object.assign(document.createElement("pre"), {id: "seen", textContent: encodeURI(JSON.stringify(seen))}));
</script>)js";

std::string decoded_uri(const std::string& text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      decoded += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// The numbers that a page was made of.
json data_in(const std::string& page) {
  const std::string start = "id=\"data\">";
  const size_t begin = page.find(start) + start.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

// What the probe saw; the browser's messages in `console`.
json seen_in_browser(std::string page, std::vector<std::string>& console) {
  page.insert(page.rfind("</body>"), kProbe);
  const std::string path = write_text("probed.html", page);
  const Outcome outcome =
      Program(program_in_path({"chromium", "chromium-browser", "google-chrome"}),
              {"--headless", "--no-sandbox", "--disable-gpu",
               "--user-data-dir=" + temporary_path("browser"), "--enable-logging=stderr",
               "--window-size=1280,900", "--dump-dom", "file://" + path},
              {})
          .wait();
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("CONSOLE") != std::string::npos) {
      console.push_back(line);
    }
  }
  const std::string start = "<pre id=\"seen\">";
  const size_t at = outcome.out.find(start);
  if (at == std::string::npos) {
    ADD_FAILURE() << "the page was not drawn\n" << outcome.err;
    return {};
  }
  const size_t begin = at + start.size();
  std::string text = outcome.out.substr(begin, outcome.out.find("</pre>", begin) - begin);
  for (size_t place = 0; (place = text.find("&amp;", place)) != std::string::npos;) {
    text.replace(place++, 5, "&");
  }
  return json::parse(decoded_uri(text));
}

// The rows of a panel's table are the groups of summary.json.
void expect_rows(const json& rows, const std::vector<json>& groups) {
  ASSERT_EQ(rows.size(), groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    const json& group = groups[i];
    const json& row = rows[i];
    SCOPED_TRACE(group["policy"]);
    const auto policy = group["policy"].get<std::string>();
    EXPECT_EQ(row[0].get<std::string>().rfind(policy, 0), 0U);
    EXPECT_EQ(row[1], group["question"] == "none" ? json("") : group["question"]);
    EXPECT_EQ(row[2], group["n"]);
    EXPECT_EQ(row[3], group["kept_fraction"]);
    EXPECT_EQ(row[4], group["kv_bytes"]);
    EXPECT_EQ(row[5], group["metrics"]["score"]["mean"]);
    EXPECT_EQ(row[9], group["metrics"]["gold_nll"]["mean"]);
    if (policy != "full") {
      EXPECT_EQ(row[6], group["to_full"]["difference"]);
      EXPECT_EQ(row[7], group["to_full"]["p_holm"]);
      EXPECT_EQ(row[8], group["to_full"]["verdict"]);
    }
    const auto notes = row.back().get<std::string>();
    for (const auto& note : group["notes"]) {
      EXPECT_NE(notes.find(note.get<std::string>()), std::string::npos) << notes;
    }
  }
}

// Which arm a table is about, by its caption.
size_t arm_of(const json& table, const std::vector<json>& groups) {
  const auto caption = table["caption"].get<std::string>();
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto question = groups[i]["question"].get<std::string>();
    const std::string name =
        groups[i]["policy"].get<std::string>() + (question == "none" ? "" : " · " + question);
    if (caption.starts_with(name + ": ")) {
      return i;
    }
  }
  ADD_FAILURE() << caption;
  return 0;
}

// The tables behind the figures of the first panel: quality, depths, kept rows, time and memory.
void expect_figure_tables(const json& tables, const std::vector<json>& groups, const json& arms) {
  const json& quality = tables[0]["rows"];
  const json& time = tables[3]["rows"];
  const json& memory = tables[4]["rows"];
  ASSERT_EQ(quality.size(), groups.size());
  ASSERT_EQ(time.size(), groups.size());
  ASSERT_EQ(memory.size(), groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    const json& group = groups[i];
    EXPECT_EQ(quality[i][1], group["kv_bytes"]);
    EXPECT_EQ(quality[i][2], group["metrics"]["score"]["mean"]);
    EXPECT_EQ(time[i][1], group["compress_ms"]);
    EXPECT_EQ(time[i][2], group["answer_ms"]);
    EXPECT_EQ(memory[i][1], group["kv_bytes"]);
    EXPECT_EQ(memory[i][2], group["kv_peak_bytes"]);
    EXPECT_EQ(memory[i][3], group["policy_bytes"]);
  }
  const json& at_depths = tables[1]["rows"];  // those of the first length come first
  const json& depths = arms[arm_of(tables[1], groups)]["depths"];
  for (size_t i = 0; i < depths["depth"].size(); ++i) {
    EXPECT_EQ(at_depths[i][1], std::stod(depths["depth"][i].get<std::string>()));
    EXPECT_EQ(at_depths[i][2], depths["metrics"]["score"][i]);
    EXPECT_EQ(at_depths[i][3], depths["n"][i]);
  }
  const json& kept = tables[2]["rows"];
  const json& n_kept = arms[arm_of(tables[2], groups)]["n_kept"];
  ASSERT_EQ(kept.size(), n_kept.size());
  for (size_t layer = 0; layer < n_kept.size(); ++layer) {
    EXPECT_EQ(kept[layer][0], layer);
    for (size_t head = 0; head < n_kept[layer].size(); ++head) {
      EXPECT_EQ(kept[layer][head + 1], n_kept[layer][head]);
    }
  }
}

TEST(ReportPage, DrawsEveryFigureInABrowserWithTheNumbersOfSummaryJson) {
  if (!eval::has_plotly()) {
    expect_refused(run_winnow({"report", results_folder(), "-o", temporary_path("none.html")}),
                   kUnsupported, {"plotly.min.js", "scripts/setup"});
    GTEST_SKIP() << "built without plotly.min.js; scripts/setup gets it";
  }
  if (program_in_path({"chromium", "chromium-browser", "google-chrome"}).empty()) {
    GTEST_SKIP() << "no chromium in PATH (Debian: chromium)";
  }
  const std::string page_path = temporary_path("report.html");
  const Outcome outcome = run_winnow({"report", results_folder(), "-o", page_path, "--title",
                                      "<script>window.isHacked = true</script>"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("not JSON"), std::string::npos) << outcome.err;
  const std::string page = read_text_file(page_path);
  EXPECT_LT(page.size(), 8'000'000U);
  std::vector<std::string> console;
  const json seen = seen_in_browser(page, console);
  ASSERT_TRUE(seen.is_object());
  ASSERT_EQ(console.size(), 1) << json(console);
  EXPECT_NE(console[0].find("the probe"), std::string::npos);
  // Two lengths with four figures each, and one of depths for both.
  EXPECT_EQ(seen["plots"], 9);
  EXPECT_EQ(seen["drawings"], 9);
  ASSERT_EQ(seen["figureTables"].size(), 9);
  for (const char* const title : {"Quality against bytes", "By depth and length", "Time", "Memory",
                                  "Kept rows of each layer and KV head"}) {
    EXPECT_NE(std::ranges::count(seen["titles"], json(title)), 0) << title;
  }
  EXPECT_EQ(seen["theme"], "dark");
  EXPECT_FALSE(seen["isHacked"]);
  EXPECT_FALSE(seen["isWiderThanWindow"]);
  EXPECT_EQ(seen["nRequests"], 0);
  EXPECT_GT(seen["warnings"], 0);
  RecordProperty("ms_until_all_was_drawn", seen["ms"].get<int>());

  const json summary = json::parse(read_text_file(results_folder() + "/summary.json"));
  ASSERT_EQ(seen["tables"].size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<json> groups;
    for (const auto& group : summary["groups"]) {
      if (group["n_tokens"] == (i == 0 ? 400 : 600)) {
        groups.push_back(group);
      }
    }
    ASSERT_EQ(groups.size(), 9);
    expect_rows(seen["tables"][i], groups);
    if (i == 0) {
      expect_figure_tables(seen["figureTables"], groups, data_in(page)["folders"][0]["arms"]);
    }
  }
}

TEST(ReportPage, WritesItsNumbersAsJson) {
  const std::string path = temporary_path("report.json");
  const Outcome outcome = run_winnow(
      {"report", results_folder(), results_folder(), "-o", path, "--data", "--title", "a <b>"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json data = json::parse(read_text_file(path));
  EXPECT_EQ(data["title"], "a <b>");
  ASSERT_EQ(data["folders"].size(), 1);
  EXPECT_NE(data["notes"][0].get<std::string>().find("the same results"), std::string::npos);
  EXPECT_NE(outcome.err.find("the same results"), std::string::npos);
  const json summary = json::parse(read_text_file(results_folder() + "/summary.json"));
  EXPECT_EQ(data["folders"][0]["summary"]["groups"], summary["groups"]);
}

TEST(ReportPageRefuses, ToWriteOverWhatItReads) {
  const std::string folder = temporary_path("report_own_folder");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << "{}";
  expect_refused(run_winnow({"report", folder, "--data", "-o", folder + "/config.json"}),
                 kInvalidArgument, {"config.json", "would be lost"});
}

TEST(ReportPageRefuses, WhatCannotBeRead) {
  const std::string page = temporary_path("refused.html");
  const std::string absent = temporary_path("no_such_folder");
  expect_refused(run_winnow({"report", "--data", absent, "-o", page}), kNotFound, {absent});
  const std::string empty = temporary_path("report_empty");
  fs::create_directories(empty);
  expect_refused(run_winnow({"report", "--data", empty, "-o", page}), kNotFound, {"config.json"});
  write_file_atomically(empty + "/config.json",
                        R"({"tasks": [], "policies": [], "lengths": [], "n": 1})");
  write_file_atomically(empty + "/samples.jsonl", "");
  expect_refused(run_winnow({"report", "--data", empty, "-o", page}), kInvalidArgument,
                 {"has no samples"});
  EXPECT_FALSE(fs::exists(page));
  expect_refused(run_winnow({"report", "--data", results_folder(), "-o", absent + "/page.html"}),
                 kIo, {absent});
  EXPECT_EQ(run_winnow({"report", results_folder()}).status, kInvalidArgument);
  EXPECT_EQ(run_winnow({"report", "-o", page}).status, kInvalidArgument);
}

}  // namespace
}  // namespace winnow::test
