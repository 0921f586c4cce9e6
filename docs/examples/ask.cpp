// Reads a document once, cuts its cache to a budget, and answers each question from a copy of that cache.

#include <winnow/session.h>

#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read '" + path + "'");
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

void print_cache(const winnow::Session& session) {
  const winnow::Statistics statistics = session.statistics();
  std::cout << "[" << statistics.positions_fed << " positions, " << statistics.bytes_now
            << " bytes now, " << statistics.bytes_peak << " at the peak, " << statistics.bytes_full
            << " in full; " << statistics.rows_evicted << " rows evicted]\n";
}

void ask(const winnow::Session& document, const std::string& question) {
  winnow::Session session = document.fork();  // the document stays as it is
  session.feed_question(question);
  std::cout << "\n> " << question << "\n";
  session.generate({.n_predict = 64, .temperature = 0, .on_text = [](const std::string& text) {
                      std::cout << text << std::flush;
                    }});
  std::cout << "\n";
  print_cache(session);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: ask MODEL DOCUMENT BUDGET QUESTION...\n";
    return 2;
  }
  try {
    const winnow::Model model(argv[1]);
    const winnow::ModelInfo info = model.info();
    std::cout << info.family << ", " << info.n_layers << " layers, trained for " << info.n_ctx_train
              << " positions\n";
    winnow::Session document(model, winnow::Policy::parse("knorm", argv[3]));
    document.feed_document(read_file(argv[2]));
    print_cache(document);
    for (int i = 4; i < argc; ++i) {
      ask(document, argv[i]);
    }
  } catch (const std::exception& error) {  // winnow::Error is one, and has a code()
    std::cerr << "ask: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
