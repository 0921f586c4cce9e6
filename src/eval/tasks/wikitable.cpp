// wikitable: answers a question about one of many tables.
//
// Source    WikiTableQuestions: Pasupat and Liang, arXiv 1508.00305. The data set is not part of winnow: file=FILE names a list of
//           questions in its form (columns id, utterance, context, targetValue between tabs), whose tables are found beside it
// Prompt    tables in Markdown, as many as fit; the question, once
// Draws     random.Random: the question, its table's place, the order of the others
// Score     primary: the answer is the gold answer, or the list of them. contained
// Differs   the published study of structured prompts has the table that is asked about always as the last one, and the question
//           twice. A question whose table is too long for the prompt is passed over; the last of the others is cut where
//           that brings the length closer

#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "eval/haystack.h"
#include "eval/prompt_length.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

constexpr int kAnswerTokens = 32;

struct WikitableOptions {
  std::string file;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(file, "file", "a TSV FILE", "questions as WikiTableQuestions has them");
  }
};

struct TableQuestion {
  std::string question;
  std::vector<std::string> answers;
  size_t table;
};

struct TableSet {
  std::vector<std::string> tables;  // in Markdown, each once
  std::vector<TableQuestion> questions;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// A cell of a list of answers: \n, \\ and \p are a line end, a backslash and a bar.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      plain += text[i];
      continue;
    }
    const char c = text[++i];
    plain += c == 'n' ? '\n' : c == 'p' ? '|' : c;
  }
  return plain;
}

// Rows of cells, which are quoted or not; in quotes a backslash stands before quotes and backslashes.
std::vector<std::vector<std::string>> csv_rows(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  bool is_quoted = false;
  bool is_row_begun = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_row_begun) {
      rows.push_back({""});
      is_row_begun = true;
    }
    std::string& cell = rows.back().back();
    const char c = text[i];
    if (is_quoted && c == '\\' && i + 1 < text.size()) {
      cell += text[++i];
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && c == ',') {
      rows.back().emplace_back();
    } else if (!is_quoted && c == '\n') {
      is_row_begun = false;
    } else if (c != '\r') {
      cell += c;
    }
  }
  return rows;
}

void add_row(const std::vector<std::string>& cells, size_t n_columns, std::string& text) {
  text += "|";
  for (size_t i = 0; i < n_columns; ++i) {
    std::string cell = i < cells.size() ? cells[i] : "";
    for (char& c : cell) {
      c = c == '\n' ? ' ' : c == '|' ? '/' : c;
    }
    text += " " + cell + " |";
  }
}

std::string as_markdown(const std::vector<std::vector<std::string>>& rows) {
  const size_t n_columns = rows.front().size();
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    text += i == 0 ? "" : "\n";
    add_row(rows[i], n_columns, text);
    if (i == 0) {
      text += "\n";
      add_row(std::vector<std::string>(n_columns, "---"), n_columns, text);
    }
  }
  return text;
}

TableSet read_tables(const std::string& path) {
  const auto refuse = [&path](size_t line, const std::string& problem) {
    throw Error(ErrorCode::kBadData, path + ", line " + std::to_string(line + 1) + ": " + problem);
  };
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::vector<std::string> lines = split(read_utf8_file(path), '\n');
  if (!lines.front().starts_with("id\tutterance\tcontext\ttargetValue")) {
    refuse(0, "the columns id, utterance, context and targetValue are not there");
  }
  TableSet set;
  std::map<std::string, size_t> known;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) {
      continue;
    }
    const std::vector<std::string> cells = split(lines[i], '\t');
    if (cells.size() < 4) {
      refuse(i, std::to_string(cells.size()) + " columns; 4 are needed");
    }
    const auto [at, is_new] = known.try_emplace(cells[2], set.tables.size());
    if (is_new) {
      const auto rows = csv_rows(read_utf8_file((folder / cells[2]).string()));
      if (rows.empty()) {
        refuse(i, "the table " + cells[2] + " is empty");
      }
      set.tables.push_back(as_markdown(rows));
    }
    TableQuestion question{unescaped(cells[1]), {}, at->second};
    for (const std::string& answer : split(cells[3], '|')) {
      question.answers.push_back(unescaped(answer));
    }
    set.questions.push_back(std::move(question));
  }
  if (set.questions.empty()) {
    throw Error(ErrorCode::kBadData, path + " has no question");
  }
  return set;
}

class Wikitable final : public Task {
 public:
  explicit Wikitable(TableSet set) : set_(std::move(set)) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  Sample ask(const SampleRequest& request, const TableQuestion& question) const;

  TableSet set_;
};

Sample Wikitable::ask(const SampleRequest& request, const TableQuestion& question) const {
  Sample sample = new_sample(request);
  sample.document = set_.tables[question.table];
  sample.questions = {"Question about one of these tables: " + question.question +
                      " Answer with the value alone, or with several separated by commas."};
  sample.answers = {question.answers};
  sample.rule = question.answers.size() > 1 ? AnswerRule::kAll : AnswerRule::kAny;
  sample.n_answer_tokens =
      std::max(kAnswerTokens, request.count_tokens(gold_text(sample, 0)) + kAnswerTokens / 4);
  return sample;
}

Sample Wikitable::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  std::vector<TableQuestion> questions = set_.questions;
  random.shuffle(questions);
  const double place = random.random();
  std::vector<std::string> others = set_.tables;
  const auto asked = std::ranges::find_if(questions, [&](const TableQuestion& question) {
    return prompt_tokens(request, ask(request, question)) <= request.n_tokens;
  });
  const Sample base = ask(request, asked == questions.end() ? questions.front() : *asked);
  std::erase(others, base.document);
  random.shuffle(others);
  size_t n_given = 0;
  const Filler filler = [&]() -> std::optional<std::string> {
    return n_given < others.size() ? std::optional(others[n_given++]) : std::nullopt;
  };
  return fit_filler(request, filler, [&](std::span<const std::string> more) {
    std::vector<std::string> tables(more.begin(), more.end());
    const auto n_before = static_cast<std::ptrdiff_t>(place * static_cast<double>(more.size() + 1));
    tables.insert(tables.begin() + n_before, base.document);
    Sample sample = base;
    sample.document = joined(tables, "\n\n");
    sample.labels["depth"] =
        rounded_text(static_cast<double>(10 * n_before / std::ssize(tables)) / 10, 1);
    return sample;
  });
}

}  // namespace

std::unique_ptr<Task> make_wikitable(policy::OptionReader& reader) {
  const auto options =
      read_options_with_file<WikitableOptions>(reader, "questions as WikiTableQuestions has them");
  return options ? std::make_unique<Wikitable>(read_tables(options->file)) : nullptr;
}

}  // namespace winnow::eval
