#include "eval/words.h"

#include "base/error.h"

namespace winnow::eval {

const std::vector<std::string>& nouns() {
  static const std::vector<std::string> words = {
      "anchor",   "anvil",    "apricot", "arrow",    "badger",    "bakery",   "balcony", "banjo",
      "barley",   "barrel",   "basket",  "beacon",   "beaver",    "bellows",  "blanket", "blossom",
      "bonfire",  "bottle",   "boulder", "bridge",   "bucket",    "buffalo",  "button",  "cabin",
      "cactus",   "camel",    "candle",  "canoe",    "canyon",    "carpet",   "carrot",  "castle",
      "cello",    "cherry",   "chimney", "clover",   "cobbler",   "coconut",  "comet",   "copper",
      "coral",    "cottage",  "cradle",  "cricket",  "crystal",   "cupboard", "curtain", "dagger",
      "dolphin",  "donkey",   "dragon",  "drum",     "eagle",     "easel",    "elbow",   "ember",
      "engine",   "falcon",   "feather", "fiddle",   "flagon",    "flannel",  "flute",   "forest",
      "fountain", "fox",      "gadget",  "galleon",  "garden",    "garlic",   "giraffe", "glacier",
      "goblet",   "granary",  "grotto",  "guitar",   "hammer",    "hammock",  "harbour", "hatchet",
      "hawthorn", "hazelnut", "helmet",  "heron",    "honey",     "hornet",   "iceberg", "inkwell",
      "island",   "ivory",    "jacket",  "jaguar",   "jasmine",   "jigsaw",   "kettle",  "kitten",
      "ladder",   "lagoon",   "lantern", "lemon",    "lichen",    "lizard",   "lobster", "locket",
      "magnet",   "maple",    "marble",  "meadow",   "melon",     "mirror",   "mitten",  "monsoon",
      "moss",     "mountain", "mustard", "napkin",   "needle",    "nettle",   "nutmeg",  "oasis",
      "olive",    "orchard",  "otter",   "oyster",   "paddle",    "pancake",  "panther", "parsley",
      "peacock",  "pebble",   "pelican", "pepper",   "piano",     "pigeon",   "pillow",  "planet",
      "plough",   "pocket",   "pony",    "poppy",    "pumpkin",   "puppet",   "quarry",  "quilt",
      "rabbit",   "radish",   "raven",   "ribbon",   "river",     "rocket",   "saddle",  "salmon",
      "sandal",   "sapphire", "scarf",   "shovel",   "shutter",   "silo",     "sparrow", "spinach",
      "spoon",    "squirrel", "stable",  "statue",   "sunflower", "swallow",  "tablet",  "teapot",
      "temple",   "thimble",  "thistle", "thunder",  "tiger",     "toffee",   "trumpet", "tulip",
      "tunnel",   "turnip",   "turtle",  "umbrella", "valley",    "velvet",   "violin",  "volcano",
      "waffle",   "wagon",    "walnut",  "walrus",   "whistle",   "willow",   "window",  "zebra",
  };
  return words;
}

const std::vector<std::string>& adjectives() {
  static const std::vector<std::string> words = {
      "agile",     "ancient", "bashful",  "bitter",     "bold",     "brave",   "brisk",
      "broken",    "bronze",  "calm",     "careful",    "cheerful", "clever",  "cloudy",
      "cold",      "crimson", "crooked",  "curious",    "damp",     "dusty",   "eager",
      "early",     "elegant", "faithful", "famous",     "fancy",    "fierce",  "frosty",
      "gentle",    "giant",   "glossy",   "golden",     "graceful", "grumpy",  "handsome",
      "happy",     "heavy",   "hollow",   "honest",     "humble",   "icy",     "idle",
      "jolly",     "lively",  "lonely",   "loud",       "lucky",    "mellow",  "mighty",
      "misty",     "modest",  "narrow",   "nimble",     "noisy",    "odd",     "orange",
      "pale",      "patient", "plain",    "polite",     "proud",    "purple",  "quaint",
      "quick",     "quiet",   "rapid",    "rare",       "restless", "rough",   "round",
      "rustic",    "scarlet", "secret",   "serene",     "shady",    "sharp",   "shiny",
      "shy",       "silent",  "silver",   "sleepy",     "slender",  "smooth",  "solemn",
      "spotted",   "stern",   "stubborn", "sturdy",     "sunny",    "swift",   "tall",
      "tidy",      "timid",   "tiny",     "tough",      "tranquil", "velvety", "vivid",
      "wandering", "warm",    "weary",    "whispering", "wicked",   "wild",    "windy",
      "wise",      "witty",   "wooden",   "yellow",     "young",
  };
  return words;
}

int n_word_pairs() {
  return static_cast<int>(adjectives().size() * nouns().size());
}

std::string word_pair(int64_t index) {
  const auto n_nouns = std::ssize(nouns());
  WINNOW_CHECK(index >= 0 && index < n_word_pairs());
  return adjectives()[static_cast<size_t>(index / n_nouns)] + "-" +
         nouns()[static_cast<size_t>(index % n_nouns)];
}

}  // namespace winnow::eval
