#include "support/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <stdexcept>

namespace winnow::test {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw std::runtime_error("cannot make a pipe");
    }
    read_end = ends[0];
    write_end = ends[1];
  }
};

void close_if_open(int& fd) {
  if (fd >= 0) {
    ::close(fd);
    fd = -1;
  }
}

// In the child: becomes the program. Only calls that are safe after a fork.
[[noreturn]] void become(const char* path, char* const* argv, int in, int out, int err,
                         size_t address_space_bytes) {
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  if (address_space_bytes > 0) {
    const rlimit limit{.rlim_cur = address_space_bytes, .rlim_max = address_space_bytes};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ::execv(path, argv);
  ::_exit(126);
}

// True when the process has a handler of its own for the signal (SigCgt of /proc/PID/status).
bool has_handler(pid_t pid, int signal) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("SigCgt:", 0) == 0) {
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1U) != 0;
    }
  }
  return false;
}

// Appends what can be read; closes at the end.
void read_some(int& fd, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0) {
    text.append(buffer.data(), static_cast<size_t>(n));
  } else {
    close_if_open(fd);
  }
}

}  // namespace

Program::Program(const std::string& path, const std::vector<std::string>& args,
                 const ProgramOptions& options)
    : input_(options.input) {
  std::signal(SIGPIPE, SIG_IGN);  // the program may end before it has read its input
  std::vector<std::string> words{path};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  Pipe in;
  Pipe out;
  Pipe err;
  if (options.is_output_closed) {
    close_if_open(out.read_end);
  }
  if (!options.input_path.empty()) {
    close_if_open(in.read_end);
    in.read_end = ::open(options.input_path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (!options.output_path.empty()) {
    close_if_open(out.write_end);
    out.write_end = ::open(options.output_path.c_str(), O_WRONLY | O_CLOEXEC);
  }
  pid_ = ::fork();
  if (pid_ < 0) {
    throw std::runtime_error("cannot fork");
  }
  if (pid_ == 0) {
    become(words[0].c_str(), argv.data(), in.read_end, out.write_end, err.write_end,
           options.address_space_bytes);
  }
  close_if_open(in.read_end);
  close_if_open(out.write_end);
  close_if_open(err.write_end);
  in_ = in.write_end;
  out_ = out.read_end;
  err_ = err.read_end;
  ::fcntl(in_, F_SETFL, O_NONBLOCK);
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_if_open(in_);
  close_if_open(out_);
  close_if_open(err_);
}

void Program::send(int signal) {
  ::kill(pid_, signal);
}

void Program::pump(const std::function<bool()>& is_enough) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (is_open() && !is_enough()) {
    if (std::chrono::steady_clock::now() > deadline) {
      send(SIGKILL);
      outcome_.err += "\n(killed by the test: two minutes are over)\n";
      return;
    }
    if (input_.empty()) {
      close_if_open(in_);
    }
    std::array<pollfd, 3> ends{{{.fd = in_, .events = POLLOUT, .revents = 0},
                                {.fd = out_, .events = POLLIN, .revents = 0},
                                {.fd = err_, .events = POLLIN, .revents = 0}}};
    ::poll(ends.data(), ends.size(), 5);
    if (in_ >= 0 && ends[0].revents != 0) {
      const ssize_t n = ::write(in_, input_.data(), input_.size());
      input_.erase(0, n > 0 ? static_cast<size_t>(n) : input_.size());
    }
    if (out_ >= 0 && ends[1].revents != 0) {
      read_some(out_, outcome_.out);
    }
    if (err_ >= 0 && ends[2].revents != 0) {
      read_some(err_, outcome_.err);
    }
  }
}

void Program::await_handler(int signal) {
  pump([&] { return has_handler(pid_, signal); });
}

void Program::await_output(size_t n_bytes) {
  pump([&] { return outcome_.out.size() >= n_bytes; });
}

Outcome Program::wait() {
  pump([] { return false; });
  int state = 0;
  ::waitpid(pid_, &state, 0);
  pid_ = -1;
  outcome_.status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  outcome_.signal = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
  return outcome_;
}

}  // namespace winnow::test
