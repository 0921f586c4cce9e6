// winnow train-probe: makes a probe, which tells roles of tokens from their ids, and says how right it is.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "calibrate/train_probe.h"
#include "cli/flag_lists.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "eval/tasks.h"
#include "model/model.h"

namespace winnow::cli {
namespace {

using calibrate::ProbeText;
using nlohmann::ordered_json;
using roles::Role;

constexpr size_t kMostBytes = 16'000'000;

struct TrainProbeFlags {
  std::string model;
  std::string output;
  std::vector<std::string> tasks{
      "schema;schema:format=compact;schema:format=xml;schema:format=markdown"};
  std::vector<std::string> other_tasks{
      "schema:format=xml-attributes;schema:format=yaml;schema:format=csv"};
  std::vector<std::string> files;
  int n = 50;
  int n_tokens = 1024;
  uint64_t seed = 0;
  bool has_no_block_features = false;
  calibrate::ProbeTraining training;
  bool is_json = false;
};

// What a probe is trained on or judged by.
struct Part {
  std::string name;
  bool is_trained = false;  // others of the same kind were trained on
  std::vector<std::string> documents = {};
  std::vector<ProbeText> labelled = {};
};

std::vector<eval::Sample> draw(const std::string& spec, const TrainProbeFlags& flags, int first,
                               int n, const model::Vocabulary& vocabulary) {
  const eval::ParsedTask parsed = eval::parse_task(spec);
  std::vector<eval::Sample> samples;
  for (int i = first; i < first + n; ++i) {
    samples.push_back(parsed.task->make(
        {.index = i,
         .n_tokens = flags.n_tokens,
         .seed = flags.seed,
         .n_template_tokens = 0,
         .count_tokens = [&](std::string_view text) {
           return static_cast<int>(vocabulary.tokenize(text, model::SpecialText::kPlain).size());
         }}));
  }
  return samples;
}

// Every fifth sample of a kind that is trained on is held out.
int n_held_out(const TrainProbeFlags& flags) {
  return std::max(1, flags.n / 5);
}

ordered_json part_json(const engine::RoleProbe& probe, const Part& part,
                       const model::Vocabulary& vocabulary) {
  const calibrate::ProbeQuality quality = calibrate::judge_probe(probe, part.labelled);
  const auto time = [&](const auto& label) {  // the least of three, of a document on average
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 3; ++round) {
      const Stopwatch stopwatch;
      for (size_t i = 0; i < part.documents.size(); ++i) {
        label(part.documents[i], part.labelled[i].tokens);
      }
      least = std::min(least, stopwatch.ms());
    }
    return least / static_cast<double>(part.documents.size());
  };
  const roles::Format& format = roles::find_format("auto");
  ordered_json json = {{"name", part.name},
                       {"is_trained", part.is_trained},
                       {"n_tokens", quality.n_tokens},
                       {"accuracy", quality.accuracy()}};
  for (const auto& [role, name] : roles::kRoleNames.entries) {
    json["f1"][name] = quality.n_there[index(role)] + quality.n_said[index(role)] == 0
                           ? ordered_json(nullptr)
                           : ordered_json(quality.f1(role));
  }
  json["n_key_said"] = quality.n_said[index(Role::kKey)];
  if (!part.documents.empty()) {
    json["probe_ms"] = time([&](const std::string& text, const auto& tokens) {
      probe.label(vocabulary, text, tokens);
    });
    json["parser_ms"] = time([&](const std::string& text, const auto& tokens) {
      engine::token_roles(vocabulary, text, tokens, format);
    });
  }
  return json;
}

std::string report_text(const ordered_json& report) {
  std::string text =
      report["probe"].get<std::string>() + ": " + std::to_string(report["n_ids"].get<size_t>()) +
      " ids, " + std::to_string(report["bytes"].get<size_t>()) + " bytes, trained on " +
      std::to_string(report["n_tokens"].get<size_t>()) + " tokens in " +
      rounded_text(report["training_s"], 1) + " s\n" + "accuracy  KEY F1   probe ms  parser ms\n";
  const auto cell = [](const ordered_json& value, int n_decimals) {
    const std::string number = value.is_number() ? rounded_text(value, n_decimals) : "-";
    return number + std::string(number.size() < 10 ? 10 - number.size() : 1, ' ');
  };
  for (const ordered_json& part : report["parts"]) {
    text += cell(part["accuracy"], 4) + cell(part["f1"]["KEY"], 4) +
            cell(part.value("probe_ms", ordered_json()), 3) +
            cell(part.value("parser_ms", ordered_json()), 3) + part["name"].get<std::string>() +
            "\n";
  }
  return text;
}

int train(const TrainProbeFlags& flags) {
  std::vector<std::string> read = flags.files;
  read.push_back(flags.model);
  check_writable(flags.output, read);
  const std::vector<std::string> tasks = split_lists(flags.tasks, "task", ';');
  const std::vector<std::string> other_tasks = split_lists(flags.other_tasks, "--other", ';');
  const model::Model model(flags.model, {});
  const model::Vocabulary& vocabulary = model.vocabulary();
  const roles::Format& format = roles::find_format("auto");
  std::vector<ProbeText> trained_on;
  std::vector<Part> parts;
  Part questions{.name = "questions", .is_trained = true};
  const auto add = [&](Part& part, std::string document) {
    part.labelled.push_back(calibrate::probe_document(vocabulary, document, format));
    part.documents.push_back(std::move(document));
  };
  for (const std::string& task : tasks) {
    for (const eval::Sample& sample : draw(task, flags, n_held_out(flags), flags.n, vocabulary)) {
      trained_on.push_back(calibrate::probe_document(vocabulary, sample.document, format));
      trained_on.push_back(calibrate::probe_question(vocabulary, sample.questions[0]));
    }
    Part part{.name = task, .is_trained = true};
    for (eval::Sample& sample : draw(task, flags, 0, n_held_out(flags), vocabulary)) {
      questions.labelled.push_back(calibrate::probe_question(vocabulary, sample.questions[0]));
      add(part, std::move(sample.document));
    }
    parts.push_back(std::move(part));
  }
  for (const std::string& task : other_tasks) {
    Part part{.name = task};
    for (eval::Sample& sample : draw(task, flags, 0, n_held_out(flags), vocabulary)) {
      add(part, std::move(sample.document));
    }
    parts.push_back(std::move(part));
  }
  for (const std::string& file : flags.files) {
    Part part{.name = file};
    add(part, read_text_file(file));
    parts.push_back(std::move(part));
  }
  parts.push_back(std::move(questions));

  const Stopwatch stopwatch;
  const engine::RoleProbe probe =
      calibrate::train_probe(vocabulary, trained_on, !flags.has_no_block_features, flags.training);
  const double training_s = stopwatch.ms() / 1000;
  if (probe.n_bytes() > kMostBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "the probe of " + std::to_string(probe.n_seen()) + " ids has " +
                    std::to_string(probe.n_bytes()) + " bytes (allowed: up to " +
                    std::to_string(kMostBytes) + "); train it on fewer or shorter documents");
  }
  probe.write(flags.output);
  size_t n_tokens = 0;
  for (const ProbeText& text : trained_on) {
    n_tokens += text.tokens.size();
  }
  ordered_json report = {
      {"probe", flags.output},         {"has_block_features", probe.has_block_features()},
      {"n_ids", probe.n_seen()},       {"bytes", probe.n_bytes()},
      {"n_tokens", n_tokens},          {"training_s", training_s},
      {"parts", ordered_json::array()}};
  for (const Part& part : parts) {
    report["parts"].push_back(part_json(probe, part, vocabulary));
  }
  write_output(flags.is_json ? report.dump(2) + "\n" : report_text(report));
  return 0;
}

}  // namespace

Verb add_train_probe(CLI::App& app) {
  const auto flags = std::make_shared<TrainProbeFlags>();
  app.add_option("tasks", flags->tasks,
                 "tasks of eval whose documents it is trained on, as the labellers label them")
      ->capture_default_str();
  app.add_option("-m,--model", flags->model, "the model whose tokens they are, a GGUF file")
      ->required();
  app.add_option("-o,--output", flags->output, "the probe to write")->required();
  app.add_option("--other", flags->other_tasks, "tasks that it is judged by alone")
      ->capture_default_str();
  app.add_option("-f,--file", flags->files, "documents that it is judged by alone");
  app.add_option("-n,--n", flags->n,
                 "documents of each task to train on; a fifth as many others are held out")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--length", flags->n_tokens, "tokens of each")
      ->check(CLI::Range(64, 1 << 20))
      ->capture_default_str();
  app.add_option("-s,--seed", flags->seed, "seed of the documents")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--passes", flags->training.n_passes, "passes over all tokens")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--no-block-features", flags->has_no_block_features,
               "ids alone, as in the published study");
  app.add_flag("--json", flags->is_json, "print JSON");
  return [flags] { return train(*flags); };
}

}  // namespace winnow::cli
