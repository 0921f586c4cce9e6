// The flags of `winnow run` and `winnow compress` (docs/cli.md).
#pragma once

#include <string>
#include <vector>

#include "cli/gpu_flags.h"
#include "engine/run.h"

namespace CLI {
class App;
}

namespace winnow::cli {

// What the flags hold before they are checked.
struct RunFlags {
  std::string model;
  std::string prompt;
  std::string system;
  std::string file;
  std::string ids;
  std::string policy;
  std::string budget;
  double compression_ratio = 0;
  std::vector<std::string> protect_text;
  std::vector<std::string> protect_tokens;
  std::string roles = "auto";
  std::string evict = "after-prompt";
  bool is_legacy_offset = false;
  double min_kept = 0;  // the share of rows that is to stay; 0: any
  std::string on_low_kept = "warn";
  std::string prefill = "auto";
  std::string weights = "auto";
  std::string key_type = "f16";
  std::string value_type = "f16";
  std::string chat_template;
  std::string cache;       // the file to go on from
  std::string save_cache;  // the file to write
  bool is_overwriting = false;
  bool no_chat = false;
  std::string dump_kept;
  std::string dump_logits;
  bool logits_all = false;
  bool is_dry_run = false;
  bool is_json = false;
  bool is_quiet = false;
  int n_threads = -1;
  std::string gpu_layers = kNoGpuLayers;
  model::RopeOptions rope;
  engine::SessionOptions session;    // what needs no checking beyond the parser's
  engine::GenerateOptions generate;  // the same

  // Which were given: an empty text is not the same as none.
  bool has_prompt = false;
  bool has_system = false;
  bool has_file = false;
  bool has_ids = false;
  bool has_ratio = false;
  bool has_evict = false;
  bool has_roles = false;
  bool has_key_type = false;
  bool has_value_type = false;

  // --ids, @FILE read.
  std::string ids_text() const;
  // --protect-text and --protect-tokens. Throws invalid_argument.
  engine::DocumentPins pins() const;
};

// Adds the flags to the parser, which writes into `flags` when it parses.
void add_run_flags(CLI::App& app, RunFlags& flags);
void add_compress_flags(CLI::App& app, RunFlags& flags);

// After parsing: fills the has_ members.
void note_given_flags(const CLI::App& app, RunFlags& flags);

}  // namespace winnow::cli
