// qa-seed: a question over two facts as in eval/seed_recipe.h: four of six people, places and instruments, first who was
// where, then what stands where.
//
// Draws     four people, four places, four instruments, then the filler. Offset 30000
// Score     primary: the instrument stands in the answer

#include <memory>

#include "eval/seed_recipe.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

constexpr int kPeople = 4;

const std::vector<std::string> kNames = {"Bettina Strand", "Conrad Okafor",    "Delphine Marsh",
                                         "Emeka Lindgren", "Fiona Castellano", "Gustav Pereira"};
const std::vector<std::string> kPlaces = {"Port Ellery",  "Grimsholt",    "Sandervik",
                                          "Lower Tamsin", "Quillan Head", "Westmarrow"};
const std::vector<std::string> kInstruments = {"anemometer",   "sextant",  "magnetometer",
                                               "spectroscope", "pendulum", "altimeter"};

class QaSeed final : public Task {
 public:
  explicit QaSeed(const SeedOptions& options) : options_(options) {}

  Sample make(const SampleRequest& request) const override {
    PythonRandom random = seed_random(request, 30000);
    const std::vector<std::string> people = random.sample(kNames, kPeople);
    const std::vector<std::string> places = random.sample(kPlaces, kPeople);
    const std::vector<std::string> instruments = random.sample(kInstruments, kPeople);
    std::vector<std::string> spans;
    for (size_t i = 0; i < people.size(); ++i) {
      spans.push_back(people[i] + " worked through the summer at " + places[i] + ".");
    }
    for (size_t i = 0; i < people.size(); ++i) {
      spans.push_back("What was set up at " + places[i] + " is the " + instruments[i] + ".");
    }

    Sample base = new_sample(request);
    base.questions = {"Which instrument was set up at the place where " + people[0] +
                      " worked through the summer?"};
    base.answers = {{instruments[0]}};
    base.rule = AnswerRule::kAll;
    base.n_answer_tokens = 48;
    return fit_seed(request, options_, random, 0, [&](std::span<const std::string> filler) {
      Sample sample = base;
      sample.document =
          "Read this text with care. A question will follow.\n\n" + scattered(filler, spans);
      return sample;
    });
  }

  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return seed_score(sample, question, answer);
  }

 private:
  SeedOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_qa_seed(policy::OptionReader& reader) {
  return std::make_unique<QaSeed>(policy::read_options<SeedOptions>(reader));
}

}  // namespace winnow::eval
