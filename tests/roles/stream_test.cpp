// Texts that arrive in pieces, are cut, are damaged or are no text at all.

#include "roles/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/files.h"
#include "roles/marked.h"

namespace winnow::roles {
namespace {

using Random = std::mt19937;

int draw(Random& random, int most) {
  return std::uniform_int_distribution<int>(0, most)(random);
}

std::string draw_word(Random& random) {
  std::string word;
  for (int n = draw(random, 8) + 1; n > 0; --n) {
    word += static_cast<char>('a' + draw(random, 25));
  }
  return word;
}

std::string draw_json(Random& random, int depth) {
  const int kind = draw(random, depth > 0 ? 5 : 2);
  if (kind < 3) {
    return kind == 0   ? std::to_string(draw(random, 99999))
           : kind == 1 ? "\"" + draw_word(random) + "\\\" x\""
                       : "null";
  }
  const bool is_object = kind != 3;
  std::string text(1, is_object ? '{' : '[');
  for (int n = draw(random, 4); n > 0; --n) {
    text += (is_object ? "\n  \"" + draw_word(random) + "\": " : " ") +
            draw_json(random, depth - 1) + (n > 1 ? "," : "");
  }
  return text + (is_object ? "}" : "]");
}

std::string draw_xml(Random& random, int depth) {
  const std::string name = draw_word(random);
  std::string text = "<" + name + " a=\"" + draw_word(random) + "\">";
  for (int n = draw(random, 3); n > 0; --n) {
    text += depth > 0 && draw(random, 2) > 0
                ? draw_xml(random, depth - 1)
                : " " + draw_word(random) + " &amp;\n<!-- - -- --><br/>";
  }
  return text + "</" + name + ">";
}

std::string draw_lines(Random& random) {
  std::string text;
  for (int n = draw(random, 12) + 1; n > 0; --n) {
    const std::string word = draw_word(random);
    switch (draw(random, 13)) {
      case 0:
        text += word + ": " + draw_word(random) + " # c\n";
        break;
      case 1:
        text += "  - " + word + ": \"" + draw_word(random) + "\n";
        break;
      case 2:
        text += "[" + word + "]\n";
        break;
      case 3:
        text += word + " = [1, '" + word + "', {a = 2}\n";
        break;
      case 4:
        text += "| " + word + " | b |\n|---|---|\n| 1 | 2 |\n";
        break;
      case 5:
        text += "```" + std::string(draw(random, 1) == 0 ? "json" : "yaml") + "\n" +
                draw_json(random, 1) + "\n```\n";
        break;
      case 6:
        text += "# " + word + "\n\n";
        break;
      case 7:
        text += word + "," + draw_word(random) + ",\"x\"\"y\"\n";
        break;
      case 8:
        text += "2024-01-02 03:04:05 INFO " + word + " a=b\n";
        break;
      case 9:
        text += draw_json(random, 2) + "\n";
        break;
      case 10:
        text += draw_xml(random, 1) + "\n";
        break;
      case 11:
        text += "<|im_start|>user\n" + word + "<|im_end|>\n";
        break;
      case 12:
        text += "User: " + word + "\r\n===\n";
        break;
      default:
        text += "key: |\n   " + word + "\n\n";
        break;
    }
  }
  return text;
}

std::string draw_text(Random& random) {
  const int kind = draw(random, 3);
  return kind == 0 ? draw_json(random, 4) : kind == 1 ? draw_xml(random, 3) : draw_lines(random);
}

// Bytes changed, left out, doubled.
std::string damaged(std::string text, Random& random) {
  constexpr std::string_view kBytes = "\"'{}[]<>/\\=:,#|-`~\n\r\t \0\xff\xc3x1";
  for (int n = draw(random, 6); n > 0 && !text.empty(); --n) {
    const auto at = static_cast<size_t>(draw(random, static_cast<int>(text.size()) - 1));
    const char byte =
        kBytes[static_cast<size_t>(draw(random, static_cast<int>(kBytes.size()) - 1))];
    switch (draw(random, 2)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text.erase(at, static_cast<size_t>(draw(random, 3)) + 1);
        break;
    }
  }
  return text;
}

// What every labelling must be: all bytes, in order, neighbours different.
void expect_whole(const std::vector<Span>& spans, std::string_view text) {
  size_t at = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    ASSERT_EQ(spans[i].begin, at);
    ASSERT_LT(spans[i].begin, spans[i].end);
    ASSERT_GE(spans[i].label.depth, 0);
    ASSERT_TRUE(i == 0 || !(spans[i].label == spans[i - 1].label));
    at = spans[i].end;
  }
  ASSERT_EQ(at, text.size());
}

std::vector<Span> streamed(std::string_view text, const Format& format,
                           const std::vector<size_t>& cuts) {
  Stream stream(format);
  std::vector<Span> spans;
  std::vector<Span> more;
  size_t at = 0;
  const auto take = [&] {
    stream.take(more);
    spans.insert(spans.end(), more.begin(), more.end());
  };
  for (const size_t cut : cuts) {
    stream.feed(text.substr(at, cut - at));
    at = cut;
    take();
  }
  stream.feed(text.substr(at));
  stream.finish();
  take();
  return spans;
}

TEST(RoleStream, DoesNotDependOnPieces) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const std::string text = damaged(draw_text(random), random);
    for (const Format& format : kFormats) {
      const std::vector<Span> whole = label_text(text, format);
      expect_whole(whole, text);
      std::vector<size_t> cuts;
      for (size_t at = 0; at < text.size();
           at += 1 + static_cast<size_t>(draw(random, round % 2 == 0 ? 0 : 40))) {
        cuts.push_back(at);
      }
      ASSERT_EQ(streamed(text, format, cuts), whole) << format.name << "\n" << text;
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

// What is labelled of a beginning stays as it is, whatever follows; and little is left open.
TEST(RoleStream, LabelsOfABeginningAreFinal) {
  Random random(2);
  for (int round = 0; round < 30; ++round) {
    const std::string text = damaged(draw_text(random), random);
    for (const Format& format : kFormats) {
      const std::string whole = letters(text, format.name);
      for (size_t cut = 0; cut <= text.size(); ++cut) {
        Stream stream(format);
        stream.feed(std::string_view(text).substr(0, cut));
        std::vector<Span> spans;
        stream.take(spans);
        for (const Span& span : spans) {
          ASSERT_EQ(std::string(span.end - span.begin, letter(span.label.role)),
                    whole.substr(span.begin, span.end - span.begin))
              << format.name << " cut at " << cut << "\n"
              << text;
        }
      }
    }
  }
}

// A text that is cut is labelled as the whole is, up to the construct in which it was cut.
TEST(RoleStream, LabelsACutTextAsTheWhole) {
  Random random(3);
  const std::vector<std::pair<std::string, std::string>> texts{
      {"json", draw_json(random, 5)},
      {"xml", "<r>" + draw_xml(random, 4) + "</r>"},
      {"csv", "a,b\n1,\"2\"\"3\"\n4,5\n"},
      {"yaml", "a: 1\nb:\n  - c: 'd'\n    e: {f: g}\nh: |\n  i\n"},
      {"toml", "[a]\nb = \"c\"\nd = [1, 2]\n"},
      {"ini", "[a]\nb = c\nd = e\n"},
      {"log", "2024-01-02 03:04:05 INFO a b=c\n2024-01-02 03:04:06 WARN d\n"},
      {"markdown", "# a\n\nb c\n\n| d | e |\n|---|---|\n| f | g |\n\n```json\n{\"a\": 1}\n```\n"}};
  for (const auto& [format, text] : texts) {
    const std::string whole = letters(text, format);
    const bool is_by_line = format != "json" && format != "xml" && format != "csv";
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const std::string beginning = text.substr(0, cut);
      // The construct is a line, and in Markdown the line before, which the next one may change; or a token.
      size_t n_same = beginning.find_last_of(is_by_line ? "\n" : " \n\t{}[]<>:,\"") + 1;
      if (format == "markdown" && n_same > 0) {
        n_same = beginning.find_last_of('\n', n_same - 2) + 1;
      }
      n_same -= std::min<size_t>(n_same, is_by_line ? 0 : 2);
      EXPECT_EQ(letters(beginning, format).substr(0, n_same), whole.substr(0, n_same))
          << format << " cut at " << cut << "\n"
          << beginning;
    }
  }
}

TEST(RoleStream, TakesAnyBytes) {
  const std::string deep_json(10000, '[');
  std::string deep_xml;
  std::string deep_yaml;
  for (int i = 0; i < 10000; ++i) {
    deep_xml += "<a>";
    deep_yaml += "- ";
  }
  std::string all_bytes;
  for (int i = 0; i < 4096; ++i) {
    all_bytes += static_cast<char>(i * 7919 % 256);
  }
  const std::vector<std::string> texts{"",
                                       std::string(5, '\0'),
                                       all_bytes,
                                       deep_json,
                                       deep_json + std::string(10000, ']'),
                                       deep_xml,
                                       deep_yaml,
                                       "}]>)</a>\"'```|---|",
                                       "\xff\xfe{\"a\": \"\xc3\"}",
                                       "\xef\xbb\xbf{\"a\": 1}",
                                       "{\"a\": 1}\r\n{\"b\": 2}\r\n",
                                       "a: b\r\n- c\r\n[d]\r\ne = f\r\n",
                                       "<!---->\xef\xbb\xbf bcdef",
                                       "<!-- a -->\n<html>\n<a>" + std::string(40000, 'x'),
                                       "<a b=/" + std::string(3000, 'c') + ">\n",
                                       "\\",
                                       "\"\\",
                                       "<",
                                       "<![CDATA[",
                                       "[[[",
                                       "```"};
  for (const std::string& text : texts) {
    for (const Format& format : kFormats) {
      expect_whole(label_text(text, format), text);
      ASSERT_EQ(streamed(text, format, {text.size() / 3, text.size() / 2}),
                label_text(text, format))
          << format.name;
    }
  }
}

TEST(RoleStream, KnowsAByteOrderMark) {
  EXPECT_EQ(letters("\xef\xbb\xbf{\"a\": 1}", "json"), "___DKKKD_VD");
  EXPECT_EQ(letters("\xef\xbb\xbf{\"a\": 1}", "auto"), "___DKKKD_VD");
  EXPECT_EQ(letters("\xef\xbb\xbf<a>b</a>", "xml"), "___DKDVDDKD");
  EXPECT_EQ(letters("\xef\xbb\xbf"
                    "a: b\n",
                    "yaml"),
            "___KD_V_");
  EXPECT_EQ(letters("\xef\xbb\xbf"
                    "a,b\n",
                    "csv"),
            "___HDH_");
}

TEST(RoleStream, CutsLongLines) {
  const std::string line(200000, 'x');
  for (const Format& format : kFormats) {
    for (const std::string& text : {line, "a: " + line + "\nb: c\n", "<a>" + line,
                                    "{\"a\": \"" + line + "\"}", "# " + line + "\n"}) {
      const std::vector<Span> whole = label_text(text, format);
      expect_whole(whole, text);
      ASSERT_EQ(streamed(text, format, {100, 40000, 100000}), whole) << format.name;
    }
  }
}

// Work that grows with the square of a text's length would take minutes here.
TEST(RoleStream, TakesTimeInProportion) {
  const std::vector<std::string> patterns{
      "{ ",    "<x\n", "{\n",  "<a>",         "[[",    "| ",       "|\n",     "\"",  "\\",
      "```\n", "a=",   "<!--", "{\"a\":1}\n", "<p",    " ",        "\n",      "- ",  "{\"a\" ",
      "</a>",  "&x ",  "'",    "<a b=\"",     "[a]\n", "x\n---\n", "a\"\"\"", "[1] "};
  for (const std::string& pattern : patterns) {
    std::string text;
    while (text.size() < (size_t{1} << 18)) {
      text += pattern;
    }
    for (const Format& format : kFormats) {
      const auto begin = std::chrono::steady_clock::now();
      Stream stream(format);
      std::vector<Span> spans;
      for (size_t at = 0; at < text.size(); at += 4096) {
        stream.feed(std::string_view(text).substr(at, 4096));
        stream.take(spans);
      }
      stream.finish();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(seconds.count(), 10) << format.name << " on " << pattern;
    }
  }
}

TEST(RoleStream, LabelsRealDocuments) {
  const std::filesystem::path folder = WINNOW_DOCUMENTS;
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "no documents in " << folder;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) {
      continue;
    }
    const std::string text = read_text_file(entry.path().string());
    const std::string kind = entry.path().parent_path().filename().string();
    const std::vector<Span> spans = label_text(text, find_format("auto"));
    expect_whole(spans, text);
    std::vector<size_t> cuts;
    for (size_t at = 1000; at < text.size(); at += 1000) {
      cuts.push_back(at);
    }
    ASSERT_EQ(streamed(text, find_format("auto"), cuts), spans) << entry.path();
    // Whole documents are taken for what their folder says, chats in JSON for JSON.
    size_t n_alike = 0;
    for (const Span& span : spans) {
      const std::string_view language = span.label.language();
      n_alike += language == kind || (language == "json" && (kind == "jsonl" || kind == "chat")) ||
                         (kind == "markdown" && language != "none")
                     ? span.end - span.begin
                     : 0;
    }
    EXPECT_GE(n_alike + 10, text.size() * (kind == "markdown" ? 6 : 10) / 10) << entry.path();
  }
}

}  // namespace
}  // namespace winnow::roles
