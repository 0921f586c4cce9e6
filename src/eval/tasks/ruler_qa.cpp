// ruler-qa: answers a question of SQuAD or HotpotQA, whose paragraphs stand among those of other questions.
//
// Source    RULER: Hsieh et al., arXiv 2404.06654, qa_1 (SQuAD, Rajpurkar et al., arXiv 1806.03822) and qa_2 (HotpotQA,
//           Yang et al., arXiv 1809.09600). The data sets are not part of winnow: file=FILE names one, in its own JSON
// Prompt    an instruction, numbered documents, as many as fit; the question
// Draws     random.Random: the question, the places of its paragraphs, the order of the others
// Score     primary: the answer is one of the gold answers. contained: RULER's score; f1: SQuAD's
// Differs   the last paragraph is cut where that brings the length closer

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "eval/haystack.h"
#include "eval/prompt_length.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

using nlohmann::json;

struct RulerQaOptions {
  std::string file;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(file, "file", "a JSON FILE", "SQuAD (dev-v2.0.json) or HotpotQA (distractor setting)");
  }
};

struct Record {
  std::string question;
  std::vector<std::string> answers;
  std::vector<std::string> paragraphs;
};

struct DataSet {
  std::vector<Record> records;
  std::vector<std::string> paragraphs;  // of all records, each once, in order of first use
};

// White space of all kinds is one space.
std::string one_line(const std::string& text) {
  return joined(split_sentences(text), " ");
}

std::vector<Record> squad_records(const json& data) {
  std::vector<Record> records;
  for (const json& article : data.at("data")) {
    for (const json& paragraph : article.at("paragraphs")) {
      for (const json& qa : paragraph.at("qas")) {
        std::set<std::string> answers;
        for (const json& answer : qa.at("answers")) {
          answers.insert(answer.at("text").get<std::string>());
        }
        if (!answers.empty() && !qa.value("is_impossible", false)) {
          records.push_back({qa.at("question"),
                             {answers.begin(), answers.end()},
                             {one_line(paragraph.at("context"))}});
        }
      }
    }
  }
  return records;
}

std::vector<Record> hotpot_records(const json& data) {
  std::vector<Record> records;
  for (const json& entry : data) {
    Record record{entry.at("question"), {entry.at("answer").get<std::string>()}, {}};
    for (const json& context : entry.at("context")) {
      std::string text;
      for (const json& sentence : context.at(1)) {
        text += sentence.get<std::string>() + " ";
      }
      record.paragraphs.push_back(context.at(0).get<std::string>() + ". " + one_line(text));
    }
    records.push_back(std::move(record));
  }
  return records;
}

DataSet read_data(const std::string& path) {
  DataSet set;
  try {
    const json data = json::parse(read_text_file(path));
    set.records = data.is_array() ? hotpot_records(data) : squad_records(data);
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kBadData,
                path + " is neither SQuAD's nor HotpotQA's JSON: " + std::string(error.what()));
  }
  if (set.records.empty()) {
    throw Error(ErrorCode::kBadData, path + " has no question with an answer");
  }
  std::set<std::string> seen;
  for (const Record& record : set.records) {
    for (const std::string& paragraph : record.paragraphs) {
      if (seen.insert(paragraph).second) {
        set.paragraphs.push_back(paragraph);
      }
    }
  }
  return set;
}

class RulerQa final : public Task {
 public:
  explicit RulerQa(DataSet data) : data_(std::move(data)) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  DataSet data_;
};

Sample RulerQa::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  const Record& record = random.choice(data_.records);
  std::vector<double> places;
  for (size_t i = 0; i < record.paragraphs.size(); ++i) {
    places.push_back(random.random());
  }
  std::vector<std::string> others = data_.paragraphs;
  std::erase_if(others, [&](const std::string& each) {
    return std::ranges::find(record.paragraphs, each) != record.paragraphs.end();
  });
  random.shuffle(others);
  size_t n_given = 0;
  const Filler filler = [&]() -> std::optional<std::string> {
    return n_given < others.size() ? std::optional(others[n_given++]) : std::nullopt;
  };

  Sample base = new_sample(request);
  base.questions = {record.question + " Answer with a few words of the documents alone."};
  base.answers = {record.answers};
  base.n_answer_tokens = 32;
  for (const std::string& answer : record.answers) {
    base.n_answer_tokens = std::max(base.n_answer_tokens, static_cast<int>(answer.size()) / 2 + 16);
  }
  return fit_filler(request, filler, [&](std::span<const std::string> more) {
    std::vector<std::string> documents(more.begin(), more.end());
    for (size_t i = 0; i < places.size(); ++i) {
      const auto place =
          static_cast<std::ptrdiff_t>(places[i] * static_cast<double>(documents.size() + 1));
      documents.insert(documents.begin() + place, record.paragraphs[i]);
    }
    Sample sample = base;
    sample.document = "Read these documents. A question about them will follow.";
    for (size_t i = 0; i < documents.size(); ++i) {
      sample.document += "\n\nDocument " + std::to_string(i + 1) + ": " + documents[i];
    }
    return sample;
  });
}

}  // namespace

std::unique_ptr<Task> make_ruler_qa(policy::OptionReader& reader) {
  const auto options =
      read_options_with_file<RulerQaOptions>(reader, "a data set in SQuAD's or HotpotQA's JSON");
  return options ? std::make_unique<RulerQa>(read_data(options->file)) : nullptr;
}

}  // namespace winnow::eval
