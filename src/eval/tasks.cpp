#include "eval/tasks.h"

#include <iterator>

#include "base/error.h"
#include "base/nearest_name.h"
#include "policy/spec.h"

namespace winnow::eval {
namespace {

// The options of a preset, as parse_spec() reads them.
std::vector<policy::GivenOption> preset_options(const TaskEntry& entry) {
  if (entry.preset.empty()) {
    return {};
  }
  policy::Spec spec = policy::parse_spec("preset:" + std::string(entry.preset));
  WINNOW_CHECK(spec.problems.empty());
  return std::move(spec.options);
}

[[noreturn]] void throw_problems(std::string_view text, const std::vector<std::string>& problems) {
  std::string message = "task '" + std::string(text) + "': ";
  for (size_t i = 0; i < problems.size(); ++i) {
    message += (i == 0 ? "" : "; ") + problems[i];
  }
  throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

const TaskEntry& find_task(std::string_view name) {
  const auto entry = std::ranges::find(kTasks, name, &TaskEntry::name);
  if (entry != std::end(kTasks)) {
    return *entry;
  }
  std::vector<std::string_view> names;
  std::ranges::transform(kTasks, std::back_inserter(names), &TaskEntry::name);
  throw Error(ErrorCode::kInvalidArgument, unknown_name("task", name, names));
}

ParsedTask parse_task(std::string_view text) {
  const policy::Spec spec = policy::parse_spec(text);
  const TaskEntry& entry = find_task(spec.method);
  policy::OptionReader reader(spec.options);
  for (const std::string& problem : spec.problems) {
    reader.add_problem(problem);
  }
  for (const std::string& part : spec.parts) {
    reader.add_problem("'+" + part + "' has no meaning for a task");
  }
  for (const policy::GivenOption& option : preset_options(entry)) {
    reader.give_default(option.name, option.value);
  }
  std::unique_ptr<Task> task = entry.make(reader);
  reader.refuse_unknown();
  if (!reader.problems().empty()) {
    throw_problems(text, reader.problems());
  }
  // A preset's options are at its defaults, not at those of the task it presets.
  std::vector<policy::OptionReader::Read> options = reader.options();
  const std::vector<policy::OptionDescription> defaults = describe_options(entry);
  for (size_t i = 0; i < options.size(); ++i) {
    options[i].description = defaults[i];
  }
  return {std::string(entry.name), policy::format_spec(entry.name, options), std::move(task)};
}

std::vector<policy::OptionDescription> describe_options(const TaskEntry& entry) {
  policy::OptionReader reader(preset_options(entry));
  entry.make(reader);
  std::vector<policy::OptionDescription> descriptions = reader.descriptions();
  for (size_t i = 0; i < descriptions.size(); ++i) {
    descriptions[i].default_value = reader.options()[i].value;
  }
  return descriptions;
}

}  // namespace winnow::eval
