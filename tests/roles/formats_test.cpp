// What each format's bytes are there for: docs/roles.md's table, on texts that can be read.

#include "roles/formats.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "roles/marked.h"

namespace winnow::roles {
namespace {

TEST(JsonRoles, TellsKeysFromStringsByTheirPlace) {
  EXPECT_EQ(
      marked(R"({"a": ["b", 1, true], "c": {"d": "e"}})", "json"),
      R"(D⟨{⟩K⟨"a"⟩D⟨:⟩ D⟨[⟩V⟨"b"⟩D⟨,⟩ V⟨1⟩D⟨,⟩ V⟨true⟩D⟨]⟩D⟨,⟩ K⟨"c"⟩D⟨:⟩ D⟨{⟩K⟨"d"⟩D⟨:⟩ V⟨"e"⟩D⟨}⟩D⟨}⟩)");
}

TEST(JsonRoles, KeepsQuotesThatAreEscaped) {
  EXPECT_EQ(marked(R"({"a\"b": "c\\"})", "json"), R"(D⟨{⟩K⟨"a\"b"⟩D⟨:⟩ V⟨"c\\"⟩D⟨}⟩)");
}

TEST(JsonRoles, TakesTheLibertiesOfJson5) {
  EXPECT_EQ(marked("{a: 'b', // c\n d: +0x1F, /* e */}", "json"),
            "D⟨{⟩K⟨a⟩D⟨:⟩ V⟨'b'⟩D⟨,⟩ P⟨// c⟩\n K⟨d⟩D⟨:⟩ V⟨+0x1F⟩D⟨,⟩ P⟨/* e */⟩D⟨}⟩");
}

TEST(JsonRoles, KeepsWhatWasUnderstoodOfBrokenText) {
  EXPECT_EQ(marked(R"({"a": 1 what "b": [2, nope})", "json"),
            R"(D⟨{⟩K⟨"a"⟩D⟨:⟩ V⟨1⟩ K⟨what⟩ K⟨"b"⟩D⟨:⟩ D⟨[⟩V⟨2⟩D⟨,⟩ P⟨nope⟩D⟨}⟩)");
  EXPECT_EQ(marked("{\"a\": \"b\n \"c\": 1}", "json"),
            "D⟨{⟩K⟨\"a\"⟩D⟨:⟩ V⟨\"b⟩\n K⟨\"c\"⟩D⟨:⟩ V⟨1⟩D⟨}⟩");
  EXPECT_EQ(marked(R"({"a": "b)", "json"), R"(D⟨{⟩K⟨"a"⟩D⟨:⟩ V⟨"b⟩)");
}

TEST(JsonRoles, FindsKeysInPiecesOfADocument) {
  EXPECT_EQ(marked(R"("a": 1, "b")", "json"), R"(K⟨"a"⟩D⟨:⟩ V⟨1⟩D⟨,⟩ V⟨"b"⟩)");
}

TEST(JsonRoles, CountsTheBracketsAround) {
  EXPECT_EQ(depths(R"({"a":[1]})", "json"), "111112221");
}

TEST(JsonRoles, BeginsAnewInEachLineOfJsonLines) {
  EXPECT_EQ(depths("{[\n{1}", "jsonl"),
            "122"
            "111");
}

TEST(XmlRoles, TellsNamesFromText) {
  EXPECT_EQ(marked(R"(<a b="c d" e>x &lt; y</a>)", "xml"),
            R"(D⟨<⟩K⟨a⟩ K⟨b⟩D⟨=⟩D⟨"⟩V⟨c⟩ V⟨d⟩D⟨"⟩ K⟨e⟩D⟨>⟩V⟨x⟩ V⟨&lt;⟩ V⟨y⟩D⟨</⟩K⟨a⟩D⟨>⟩)");
}

TEST(XmlRoles, CountsWhatIsNoContentAsPunctuation) {
  EXPECT_EQ(
      letters("<?xml?><!DOCTYPE a [<!ENTITY b 'c>'>]><a><!-- d > --><![CDATA[<e>]]></a>", "xml"),
      "DDDDDDD"
      "DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD"
      "DKD"
      "DDDDDDDDDDDD"
      "DDDDDDDDDVVVDDD"
      "DDKD");
}

TEST(XmlRoles, LabelsTextOutsideElementsAsProse) {
  EXPECT_EQ(marked("<a>b</a>\nWhat is a < b?", "xml"),
            "D⟨<⟩K⟨a⟩D⟨>⟩V⟨b⟩D⟨</⟩K⟨a⟩D⟨>⟩\nP⟨What is a < b?⟩");
}

TEST(XmlRoles, CountsTheElementsAround) {
  EXPECT_EQ(depths("<a><b/>x<c>y</c></a>", "xml"),
            "111"
            "2222"
            "1"
            "222"
            "2"
            "2222"
            "1111");
}

TEST(XmlRoles, PassesOverEndTagsOfNothing) {
  EXPECT_EQ(depths("<a></b>x</a>", "xml"),
            "111"
            "1111"
            "1"
            "1111");
}

TEST(HtmlRoles, KnowsElementsWithoutEndTags) {
  EXPECT_EQ(depths("<ul><li>a<br>b<li>c</ul>d", "html"),
            "1111"
            "2222"
            "2"
            "3333"
            "2"
            "2222"
            "2"
            "11111"
            "0");
  EXPECT_EQ(letters("<p>a<script>if (a<b) c</script>", "html"), "DKDVDKKKKKKDVV_VVVVV_VDDKKKKKKD");
}

TEST(CsvRoles, TakesTheFirstRowForNames) {
  EXPECT_EQ(marked("a,b c\n1,\"2,\"\"3\"\n", "csv"),
            "H⟨a⟩D⟨,⟩H⟨b c⟩\nV⟨1⟩D⟨,⟩D⟨\"⟩V⟨2,\"\"3⟩D⟨\"⟩\n");
}

TEST(CsvRoles, FindsTheSeparator) {
  EXPECT_EQ(marked("a;b,c;d\n1;2;3", "csv"), "H⟨a⟩D⟨;⟩H⟨b,c⟩D⟨;⟩H⟨d⟩\nV⟨1⟩D⟨;⟩V⟨2⟩D⟨;⟩V⟨3⟩");
}

TEST(CsvRoles, ReadsNamesBehindAMark) {
  EXPECT_EQ(marked("# about\n#a\tb\n1\t2\n", "tsv"),
            "P⟨# about⟩\nD⟨#⟩H⟨a⟩D⟨\t⟩H⟨b⟩\nV⟨1⟩D⟨\t⟩V⟨2⟩\n");
}

TEST(YamlRoles, TellsKeysFromScalars) {
  EXPECT_EQ(marked("a: 1 # b\nc:\n  - d: 'e: f'\n    \"g\": {h: [i, j]}\n", "yaml"),
            "K⟨a⟩D⟨:⟩ V⟨1⟩ P⟨# b⟩\nK⟨c⟩D⟨:⟩\n  D⟨-⟩ K⟨d⟩D⟨:⟩ V⟨'e: f'⟩\n    K⟨\"g\"⟩D⟨:⟩ "
            "D⟨{⟩K⟨h⟩D⟨:⟩ D⟨[⟩V⟨i⟩D⟨,⟩ V⟨j⟩D⟨]⟩D⟨}⟩\n");
}

TEST(YamlRoles, GoesOnWithScalarsInTheNextLine) {
  EXPECT_EQ(marked("a: |\n  b: c\n\n  # d\ne: f\n  g: h\ni: \"j\n  k: l\"\n", "yaml"),
            "K⟨a⟩D⟨:⟩ D⟨|⟩\n  V⟨b: c⟩\n\n  V⟨# d⟩\nK⟨e⟩D⟨:⟩ V⟨f⟩\n  V⟨g: h⟩\nK⟨i⟩D⟨:⟩ V⟨\"j\n  k: "
            "l\"⟩\n");
}

TEST(YamlRoles, LabelsMarksAnchorsAndTags) {
  EXPECT_EQ(marked("--- \n&a b: !c d\n<<: *a\n...\n", "yaml"),
            "D⟨---⟩ \nD⟨&a⟩ K⟨b⟩D⟨:⟩ D⟨!c⟩ V⟨d⟩\nK⟨<<⟩D⟨:⟩ V⟨*a⟩\nD⟨...⟩\n");
}

TEST(YamlRoles, CountsTheCollectionsAround) {
  EXPECT_EQ(depths("a:\n- b: c\nd: e\n", "yaml"),
            "111"
            "2233333"
            "11111");
}

TEST(TomlRoles, TellsTablesKeysAndValues) {
  EXPECT_EQ(marked("[a.\"b]\"] # c\nd.e = \"f\\\"#\"\ng = [\n 1, # h\n {i = 2},\n]\n", "toml"),
            "D⟨[⟩H⟨a.\"b]\"⟩D⟨]⟩ P⟨# c⟩\nK⟨d.e⟩ D⟨=⟩ V⟨\"f\\\"#\"⟩\nK⟨g⟩ D⟨=⟩ D⟨[⟩\n V⟨1⟩D⟨,⟩ P⟨# "
            "h⟩\n D⟨{⟩K⟨i⟩ D⟨=⟩ V⟨2⟩D⟨}⟩D⟨,⟩\nD⟨]⟩\n");
}

TEST(TomlRoles, GoesOnWithStringsInTheNextLine) {
  EXPECT_EQ(marked("a = \"\"\"b\nc = 'd'\\\"\"\"\"\"\"\ne = '''f'''\n", "toml"),
            "K⟨a⟩ D⟨=⟩ V⟨\"\"\"b\nc = 'd'\\\"\"\"\"\"\"⟩\nK⟨e⟩ D⟨=⟩ V⟨'''f'''⟩\n");
}

TEST(TomlRoles, ForgetsABracketThatIsNotClosed) {
  EXPECT_EQ(marked("a = [1,\nb = 2\n", "toml"), "K⟨a⟩ D⟨=⟩ D⟨[⟩V⟨1⟩D⟨,⟩\nK⟨b⟩ D⟨=⟩ V⟨2⟩\n");
}

TEST(IniRoles, TellsSectionsKeysAndValues) {
  EXPECT_EQ(marked("; a\n[b]\nc = d e ; f\ng\nh: i\n  j\n", "ini"),
            "P⟨; a⟩\nD⟨[⟩H⟨b⟩D⟨]⟩\nK⟨c⟩ D⟨=⟩ V⟨d e⟩ P⟨; f⟩\nK⟨g⟩\nK⟨h⟩D⟨:⟩ V⟨i⟩\n  V⟨j⟩\n");
}

TEST(LogRoles, TellsTimeLevelAndPairs) {
  EXPECT_EQ(marked("2024-01-02 03:04:05,678 WARN [x] user=ann failed 3 times \"a b\"\n", "log"),
            "H⟨2024-01-02 03:04:05,678⟩ H⟨WARN⟩ P⟨[x] ⟩K⟨user⟩D⟨=⟩V⟨ann⟩ P⟨failed ⟩V⟨3⟩ P⟨times "
            "⟩V⟨\"a b\"⟩\n");
}

TEST(LogRoles, ReadsJsonInALine) {
  EXPECT_EQ(marked("[2024-01-02T03:04:05Z] local.ERROR: no {\"a\": 1}\n", "log"),
            "H⟨[2024-01-02T03:04:05Z]⟩ H⟨local.ERROR:⟩ P⟨no ⟩D⟨{⟩K⟨\"a\"⟩D⟨:⟩ V⟨1⟩D⟨}⟩\n");
}

TEST(MarkdownRoles, TellsHeadingsTablesAndText) {
  EXPECT_EQ(
      marked("# A b\n\nc d\n\n| e | f g |\n|---|:-:|\n| h\\|i | |\n\nJ\n===\nk\n", "markdown"),
      "H⟨# A b⟩\n\nP⟨c d\n⟩\nD⟨|⟩ H⟨e⟩ D⟨|⟩ H⟨f g⟩ D⟨|⟩\nD⟨|---|:-:|⟩\nD⟨|⟩ V⟨h\\|i⟩ D⟨|⟩ "
      "D⟨|⟩\n\nH⟨J⟩\nD⟨===⟩\nP⟨k\n⟩");
}

TEST(MarkdownRoles, LabelsFencesByTheirLanguage) {
  EXPECT_EQ(marked("```json\n{\"a\": 1}\n```\n~~~\nb:\n~~~\n``` python\n# c\n```\nd", "markdown"),
            "D⟨```json⟩\nD⟨{⟩K⟨\"a\"⟩D⟨:⟩ V⟨1⟩D⟨}⟩\nD⟨```⟩\nD⟨~~~⟩\nP⟨b:\n⟩D⟨~~~⟩\nD⟨``` "
            "python⟩\nP⟨# c\n⟩D⟨```⟩\nP⟨d⟩");
}

TEST(MarkdownRoles, ReadsFrontMatter) {
  EXPECT_EQ(marked("---\na: b\n---\nc", "markdown"), "D⟨---⟩\nK⟨a⟩D⟨:⟩ V⟨b⟩\nD⟨---⟩\nP⟨c⟩");
}

TEST(ChatRoles, LabelsSpeakersAndWhatTheySayByItsFormat) {
  EXPECT_EQ(
      marked("User: what is {\"a\": 1}?\nTool: {\"a\": 1}\nAssistant: 1", "chat"),
      "H⟨User:⟩ P⟨what is {\"a\": 1}?\n⟩H⟨Tool:⟩ D⟨{⟩K⟨\"a\"⟩D⟨:⟩ V⟨1⟩D⟨}⟩\nH⟨Assistant:⟩ P⟨1⟩");
}

TEST(ChatRoles, KnowsTheMarksOfTemplates) {
  EXPECT_EQ(marked("<|im_start|>user\nhi<|im_end|>\n<tool_call>\n{\"a\": 1}\n</tool_call>", "chat"),
            "H⟨<|im_start|>user⟩\nP⟨hi⟩H⟨<|im_end|>⟩\nH⟨<tool_call>⟩\nD⟨{⟩K⟨\"a\"⟩D⟨:⟩ "
            "V⟨1⟩D⟨}⟩\nH⟨</tool_call>⟩");
}

TEST(AutoRoles, SwitchesBetweenFormats) {
  EXPECT_EQ(marked("See:\n{\"a\": 1}\n\nand\n<b>c</b>\nWhat is [a]?", "auto"),
            "P⟨See:\n⟩D⟨{⟩K⟨\"a\"⟩D⟨:⟩ V⟨1⟩D⟨}⟩\n\nP⟨and\n⟩D⟨<⟩K⟨b⟩D⟨>⟩V⟨c⟩D⟨</⟩K⟨b⟩D⟨>⟩\nP⟨What "
            "is [a]?⟩");
}

TEST(AutoRoles, TakesWhatOnlyLooksLikeAFormatForText) {
  for (const char* const text :
       {"{name} was here, [1] and [link](x).", "[1] A note.", "<name> is a word",
        "Note: this.\nTo: you, and me.", "a = b", "[x] done"}) {
    EXPECT_EQ(letters(text, "auto").find_first_not_of("P"), std::string::npos)
        << text << "\n"
        << letters(text, "auto");
  }
}

TEST(AutoRoles, TellsWholeTextsFromTheirBeginnings) {
  const auto language = [](std::string_view text) {
    return label_text(text, find_format("auto"))[0].label.language();
  };
  EXPECT_EQ(language("a,b,c\n1,2,3\n"), "csv");
  EXPECT_EQ(language("a\tb\n1\t2\n"), "tsv");
  EXPECT_EQ(language("a: 1\nb:\n  - c\n"), "yaml");
  EXPECT_EQ(language("[a]\nb = \"c\"\n"), "toml");
  EXPECT_EQ(language("[a]\nb = c\n"), "ini");
  EXPECT_EQ(language("2024-01-02 03:04:05 INFO a\n"), "log");
  EXPECT_EQ(language("{\"a\": 1}"), "json");
  EXPECT_EQ(language("<?xml version=\"1.0\"?>\n<a/>"), "xml");
  EXPECT_EQ(language("<!DOCTYPE html>\n<p>a"), "html");
}

TEST(AutoRoles, KnowsAPageWithoutADoctype) {
  // No end tag is near: what is in the page's head is longer than what is looked at.
  const std::string page = "<html lang=\"a\">\n<head><style>" + std::string(60000, 'x') +
                           "</style></head><body><p>y</p></body></html>";
  const std::string labels = letters(page, "html");
  for (const std::string before : {"", "\n", "<!-- saved -->\n", "A page:\n\n"}) {
    const std::string text = before + page + "\nWhat is it?";
    const std::string all = letters(text, "auto");
    EXPECT_EQ(all.substr(before.size(), page.size()), labels) << before;
    EXPECT_EQ(all.back(), 'P');
    EXPECT_EQ(label_text(text, find_format("auto")).back().label.language(), "auto");
  }
  for (const char* const prose : {"<html> is the outermost element.", "<htmlx>\n<b", "<html"}) {
    EXPECT_EQ(letters(prose + std::string("\n") + std::string(60000, 'x'), "auto").substr(0, 5),
              "PPPPP")
        << prose;
  }
}

TEST(AutoRoles, BarsInTheMarksOfTemplatesAreNoSeparators) {
  const std::string text =
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n";
  EXPECT_EQ(letters(text, "auto"), letters(text, "chat"));
}

TEST(AutoRoles, TakesIndentedJsonBehindALineOfTextForJson) {
  const std::string json = "{\n  \"a\": {\n    \"b\": 1,\n    \"c\": 2\n  }\n}";
  for (const std::string line : {"<|im_start|>user\n", "Here it is:\n", "Of 3 values:\r\n"}) {
    const std::string labels = letters(line + json + "\n\nWhat is b?", "auto");
    EXPECT_EQ(labels.substr(line.size(), json.size()), letters(json, "json")) << labels;
    EXPECT_EQ(labels[labels.size() - 1], 'P');
  }
}

TEST(AutoRoles, KeepsTheBeginningOfJsonThatIsCut) {
  EXPECT_EQ(marked("{\"a\": {\"b\": [1, 2\n\nWhat is a.b?", "auto"),
            "D⟨{⟩K⟨\"a\"⟩D⟨:⟩ D⟨{⟩K⟨\"b\"⟩D⟨:⟩ D⟨[⟩V⟨1⟩D⟨,⟩ V⟨2⟩\n\nP⟨What is a.b?⟩");
}

TEST(AutoRoles, GivesBlocksNumbers) {
  const std::vector<Span> spans = label_text("a\n{\"b\": 1}\nc", find_format("auto"));
  EXPECT_EQ(spans.front().label.block, 0);
  EXPECT_EQ(spans[1].label.block, 1);
  EXPECT_EQ(spans[1].label.language(), "json");
  EXPECT_EQ(spans.back().label.block, 2);
  EXPECT_EQ(spans.back().label.language(), "auto");
}

// The published rules and their faults (no DELIM and no WS in XML, cut JSON is PROSE), on purpose.
TEST(PaperRoles, AreThoseOfTheStudy) {
  EXPECT_EQ(marked("{\"a\": 1} what?", "paper"), "D⟨{⟩K⟨\"a\"⟩D⟨:⟩ V⟨1⟩D⟨}⟩P⟨ what?⟩");
  EXPECT_EQ(letters("{\"a\": [1, 2", "paper"), "PPPPPPPPPPP");
  EXPECT_EQ(marked("<a b=\"c\"> d</a> e?", "paper"), "K⟨<a b=\"c\">⟩V⟨ d⟩K⟨</a>⟩V⟨ e?⟩");
  EXPECT_EQ(marked("q\n| a b |\n|---|\n| c d |\n", "paper"),
            "P⟨q\n⟩D⟨|⟩ H⟨a⟩ H⟨b⟩ D⟨|⟩\nD⟨|---|\n|⟩ V⟨c⟩ V⟨d⟩ D⟨|⟩\n");
  EXPECT_EQ(marked("x\n```json\n{\"a\": 1}\n```\n", "paper"),
            "P⟨x\n⟩D⟨```json\n⟩D⟨{⟩K⟨\"a\"⟩D⟨:⟩ V⟨1⟩D⟨}⟩P⟨\n⟩D⟨```⟩P⟨\n⟩");
}

TEST(NoRoles, AreProse) {
  EXPECT_EQ(letters("{\"a\": 1}\n", "none"), "PPPPPPPPP");
}

TEST(Formats, AreFoundByName) {
  EXPECT_EQ(find_format("yaml").name, "yaml");
  EXPECT_THROW(find_format("yalm"), Error);
}

}  // namespace
}  // namespace winnow::roles
