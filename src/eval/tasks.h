// The list of evaluation tasks. Adding one: a file in tasks/, its maker's declaration and a row here.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"
#include "policy/option_reader.h"

namespace winnow::eval {

struct TaskEntry {
  std::string_view name;  // as users type it
  // Called with an empty reader to describe the task's options, so without a file named there, it opens none.
  std::unique_ptr<Task> (*make)(policy::OptionReader&);
  std::string_view preset;  // options it gives where the user does not: "keys=4,type=uuid"
  std::string_view help;
};

// The options of a task about the FILE that they name; none where something is refused, so that no file is looked for on behalf of
// options that are. `what` the file is, for the message where it is missing.
template <typename Options>
std::optional<Options> read_options_with_file(policy::OptionReader& reader,
                                              const std::string& what) {
  auto options = policy::read_options<Options>(reader);
  if (options.file.empty()) {
    reader.add_problem("file=FILE is missing: " + what);
  }
  return reader.problems().empty() ? std::optional(std::move(options)) : std::nullopt;
}

std::unique_ptr<Task> make_cwe(policy::OptionReader&);
std::unique_ptr<Task> make_cwe_seed(policy::OptionReader&);
std::unique_ptr<Task> make_doc(policy::OptionReader&);
std::unique_ptr<Task> make_fwe(policy::OptionReader&);
std::unique_ptr<Task> make_fwe_seed(policy::OptionReader&);
std::unique_ptr<Task> make_json_out(policy::OptionReader&);
std::unique_ptr<Task> make_niah(policy::OptionReader&);
std::unique_ptr<Task> make_niah_seed(policy::OptionReader&);
std::unique_ptr<Task> make_qa(policy::OptionReader&);
std::unique_ptr<Task> make_qa_seed(policy::OptionReader&);
std::unique_ptr<Task> make_ruler_qa(policy::OptionReader&);
std::unique_ptr<Task> make_rules(policy::OptionReader&);
std::unique_ptr<Task> make_schema(policy::OptionReader&);
std::unique_ptr<Task> make_schema_doc(policy::OptionReader&);
std::unique_ptr<Task> make_vt(policy::OptionReader&);
std::unique_ptr<Task> make_vt_seed(policy::OptionReader&);
std::unique_ptr<Task> make_wikitable(policy::OptionReader&);

inline constexpr TaskEntry kTasks[] = {
    {"cwe", make_cwe, "", "RULER: finds the words that a list holds most often"},
    {"cwe-seed", make_cwe_seed, "", "the small cwe of a published comparison (seed_recipe.h)"},
    {"doc", make_doc, "", "answers questions about your own file, made from it: file=FILE"},
    {"fwe", make_fwe, "", "RULER: finds the most frequent of coded words"},
    {"fwe-seed", make_fwe_seed, "", "the small fwe of a published comparison"},
    {"json-out", make_json_out, "", "writes a record of a long text as JSON"},
    {"multiturn", make_niah, "keys=6,turns=6",
     "finds hidden facts, six questions one after another"},
    {"niah", make_niah, "", "finds facts that are hidden in a long text"},
    {"niah-multikey-1", make_niah, "keys=4",
     "RULER: one of four facts; for its essays give haystack=FILE"},
    {"niah-multikey-2", make_niah, "haystack=needles", "RULER: one fact in a text of such facts"},
    {"niah-multikey-3", make_niah, "haystack=needles,key=uuid,type=uuid",
     "RULER: one fact in a text of such facts, all of UUIDs"},
    {"niah-multiquery", make_niah, "keys=4,queries=4",
     "RULER: four facts asked for at once; for its essays give haystack=FILE"},
    {"niah-multivalue", make_niah, "values=4",
     "RULER: four values of one key; for its essays give haystack=FILE"},
    {"niah-seed", make_niah_seed, "", "the needles of a published comparison"},
    {"niah-single-1", make_niah, "haystack=repeat", "RULER: a number in a repeated passage"},
    {"niah-single-2", make_niah, "", "RULER: a number; for its essays give haystack=FILE"},
    {"niah-single-3", make_niah, "type=uuid", "RULER: a UUID; for its essays give haystack=FILE"},
    {"qa", make_qa, "", "answers a question that takes two facts, far apart in a long text"},
    {"qa-seed", make_qa_seed, "", "the two-fact questions of a published comparison"},
    {"ruler-qa", make_ruler_qa, "",
     "RULER: questions of SQuAD or HotpotQA among other documents: file=FILE"},
    {"rules", make_rules, "", "follows instructions that stand before a long text"},
    {"schema", make_schema, "", "looks up a value in JSON, XML, YAML or a table, by its path"},
    {"schema-doc", make_schema_doc, "", "looks up something in your own JSON or XML: file=FILE"},
    {"vt", make_vt, "", "RULER: names all variables that hold a value, some through others"},
    {"vt-seed", make_vt_seed, "", "the small vt of a published comparison"},
    {"wikitable", make_wikitable, "", "answers a question about one of many tables: file=FILE"},
};
static_assert(std::ranges::is_sorted(kTasks, {}, &TaskEntry::name), "kTasks is sorted by name");

// Throws invalid_argument with the nearest name and the list.
const TaskEntry& find_task(std::string_view name);

struct ParsedTask {
  std::string name;
  std::string spec;  // canonical: the name, and the options that are not at their defaults
  std::unique_ptr<Task> task;
};

// Reads "niah:keys=4,type=uuid". Throws invalid_argument with every problem, and what reading a file that is named
// throws.
ParsedTask parse_task(std::string_view text);

// A task's options with the defaults that they have for it.
std::vector<policy::OptionDescription> describe_options(const TaskEntry& entry);

}  // namespace winnow::eval
