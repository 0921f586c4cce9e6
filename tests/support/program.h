// Starts a program as a user would, without a shell, and collects what it says and how it ends.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace winnow::test {

struct Outcome {
  int status = -1;  // exit status; -1 when a signal ended it
  int signal = 0;   // the signal that ended it; 0 when it exited
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::string input = {};          // standard input
  size_t address_space_bytes = 0;  // ulimit -v; 0: unlimited
  bool is_output_closed = false;   // nobody reads standard output
  std::string input_path = {};     // standard input comes from there instead
  std::string output_path = {};    // standard output goes there instead
};

// A program that runs until wait(). One that does not end within two minutes is killed.
class Program {
 public:
  Program(const std::string& path, const std::vector<std::string>& args,
          const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal);
  // Reads until the program has a handler for the signal, or has ended.
  void await_handler(int signal);
  // Reads until standard output has so many bytes, or the program has ended.
  void await_output(size_t n_bytes);
  Outcome wait();

 private:
  // Moves bytes until `is_enough` or until both outputs are closed.
  void pump(const std::function<bool()>& is_enough);
  bool is_open() const { return out_ >= 0 || err_ >= 0; }

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string input_;  // what is still to be written
  Outcome outcome_;
};

}  // namespace winnow::test
