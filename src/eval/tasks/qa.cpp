// qa: answers a question that takes two facts, far apart in a long text.
//
// Source    the shape of HotpotQA (Yang et al., arXiv 1809.09600), which RULER uses; generated, as the two facts must
//           not be known to the model. Own wording
// Prompt    an instruction, filler with who lives where and what instrument stands where, for the person asked for and
//           `distractors` others; the question names the person
// Depth     the first fact stands at the sample's depth, all others at drawn places
// Draws     random.Random: names, towns, instruments, places, then the filler
// Score     primary: the answer is the instrument. contained, f1: it stands in the answer, shares words with it

#include <memory>

#include "base/text.h"
#include "eval/haystack.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace winnow::eval {
namespace {

struct QaOptions {
  int distractors = 3;
  std::string haystack = "noise";
  int depths = 10;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(distractors, "distractors", 0, 15,
      "others who live elsewhere, where other instruments stand");
    v(haystack, "haystack", kHaystackForm,
      "the filler: sentences at random, a repeated passage, or essays");
    v(depths, "depths", 2, 101, "depths from start to end that the first fact takes in turn");
  }
};

const std::vector<std::string> kFirstNames = {
    "Adaeze", "Bastian", "Corinne", "Dmitri",  "Eleni",    "Farouk", "Greta",  "Hiroshi",
    "Imogen", "Joaquin", "Katya",   "Leopold", "Mireille", "Nikhil", "Oksana", "Pascal"};
const std::vector<std::string> kLastNames = {"Abernathy", "Bellweather", "Castellan", "Drummond",
                                             "Eriksen",   "Fontaine",    "Gallagher", "Hashimoto",
                                             "Ivanenko",  "Jankowski",   "Kowalczyk", "Lindqvist",
                                             "Montoya",   "Nakamura",    "Okonkwo",   "Petrescu"};
const std::vector<std::string> kTowns = {"Aldermoor",  "Brackwater", "Cindersby",  "Dunmarsh",
                                         "Eastholm",   "Fernleigh",  "Gorsebury",  "Hollinwick",
                                         "Inverlocke", "Juniperton", "Kelderwick", "Larkmead",
                                         "Mossgate",   "Netherby",   "Oakhampton", "Pinefold"};
const std::vector<std::string> kInstruments = {
    "accordion",    "bagpipe",   "bassoon",     "celesta",  "clavichord", "dulcimer",
    "glockenspiel", "harmonium", "harpsichord", "marimba",  "oboe",       "saxophone",
    "spinet",       "tuba",      "vibraphone",  "xylophone"};

class Qa final : public Task {
 public:
  explicit Qa(const QaOptions& options) : options_(options), haystack_(options.haystack) {}

  Sample make(const SampleRequest& request) const override;
  Score score(const Sample& sample, int question, std::string_view answer) const override {
    return exact_score(sample, question, answer);
  }

 private:
  QaOptions options_;
  Haystack haystack_;
};

Sample Qa::make(const SampleRequest& request) const {
  PythonRandom random = sample_random(request);
  const int n = options_.distractors + 1;
  const std::vector<std::string> first = random.sample(kFirstNames, n);
  const std::vector<std::string> last = random.sample(kLastNames, n);
  const std::vector<std::string> towns = random.sample(kTowns, n);
  const std::vector<std::string> instruments = random.sample(kInstruments, n);
  const double depth = depth_of(request.index, options_.depths);
  std::vector<std::string> facts;
  std::vector<double> places;
  for (size_t i = 0; i < towns.size(); ++i) {
    facts.push_back(first[i] + " " + last[i] + " lives in " + towns[i] + ".");
    places.push_back(i == 0 ? depth : random.random());
    facts.push_back("The instrument in the town hall of " + towns[i] + " is a kind of " +
                    instruments[i] + ".");
    places.push_back(random.random());
  }

  Sample base = new_sample(request);
  base.questions = {"Which instrument is in the town hall of the place where " + first[0] + " " +
                    last[0] + " lives? Answer with the name of the instrument alone."};
  base.answers = {{instruments[0]}};
  base.n_answer_tokens = 24;
  base.labels["depth"] = rounded_text(depth, 2);
  base.labels["second_depth"] = rounded_text(places[1], 2);
  return fit_filler(request, haystack_.filler(random), [&](std::span<const std::string> filler) {
    Sample sample = base;
    sample.document = "Read the text below. A question about it will follow.\n\n" +
                      with_facts(filler, facts, places);
    return sample;
  });
}

}  // namespace

std::unique_ptr<Task> make_qa(policy::OptionReader& reader) {
  auto options = policy::read_options<QaOptions>(reader);
  options.haystack = haystack_to_open(options.haystack, reader);
  return std::make_unique<Qa>(options);
}

}  // namespace winnow::eval
