// The verbs of the command line: each adds its flags to the parser and returns what to do when it was chosen.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace winnow::cli {

// Runs the verb; returns the exit status. Throws Error.
using Verb = std::function<int()>;

Verb add_run(CLI::App& app);
Verb add_compress(CLI::App& app);
Verb add_bench(CLI::App& app);
Verb add_bench_policy(CLI::App& app);  // a verb of bench
Verb add_eval(CLI::App& app);
Verb add_report(CLI::App& app);
Verb add_tune(CLI::App& app);
Verb add_calibrate(CLI::App& app);
Verb add_roles(CLI::App& app);
Verb add_train_probe(CLI::App& app);
Verb add_score(CLI::App& app);
Verb add_methods(CLI::App& app);

}  // namespace winnow::cli
