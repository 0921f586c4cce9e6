// The generator must be CPython's, or nobody else can make the same prompts. All values below were printed by
// python3.11 with the calls that stand beside them.

#include "eval/random.h"

#include <gtest/gtest.h>

#include <numeric>

namespace winnow::eval {
namespace {

using Indices = std::vector<int64_t>;

// r = random.Random(seed): three getrandbits(32), random(), then getrandbits of 64, 1, 33 and 7 bits.
struct SeedCase {
  uint64_t seed;
  uint32_t words[3];
  double number;
  uint64_t bits64, bits1, bits33, bits7;
};

TEST(PythonRandom, MatchesCPythonForSeedsOfOneAndTwoWords) {
  const SeedCase cases[] = {
      {0,
       {3626764237, 1654615998, 3255389356},
       0.890243920837131,
       4776171008201404212U,
       1,
       2195908194,
       51},
      {1,
       {577090037, 2444712010, 3639700191},
       0.8022650611681835,
       4705193143269049553U,
       0,
       6422844795,
       57},
      {42,
       {2746317213, 478163327, 107420369},
       0.7415504997598329,
       4117511471858006928U,
       0,
       3163119785,
       86},
      {1ULL << 32,
       {485306839, 1508871100, 1794561286},
       0.9347212762883035,
       11284269182920140557U,
       1,
       7755194880,
       42},
      {0x123456789abcdef0,
       {3646699384, 2523371432, 4144361526},
       0.9083118430235956,
       8624527970038762254U,
       0,
       1332324837,
       117},
      {~0ULL,
       {93740670, 1068495656, 1452108352},
       0.6187512294349632,
       11347071888800127570U,
       0,
       8244494580,
       47},
  };
  for (const SeedCase& expected : cases) {
    PythonRandom random(expected.seed);
    for (const uint32_t word : expected.words) {
      EXPECT_EQ(random.bits(32), word) << expected.seed;
    }
    EXPECT_EQ(random.random(), expected.number) << expected.seed;
    EXPECT_EQ(random.bits(64), expected.bits64) << expected.seed;
    EXPECT_EQ(random.bits(1), expected.bits1) << expected.seed;
    EXPECT_EQ(random.bits(33), expected.bits33) << expected.seed;
    EXPECT_EQ(random.bits(7), expected.bits7) << expected.seed;
  }
}

// r = random.Random(7), the calls in this order.
TEST(PythonRandom, DrawsIntegersChoicesSamplesAndShufflesAsCPythonDoes) {
  PythonRandom random(7);
  Indices codes;
  for (int i = 0; i < 5; ++i) {
    codes.push_back(random.between(1000, 9999));  // randint(1000, 9999)
  }
  EXPECT_EQ(codes, (Indices{6305, 3471, 7468, 1791, 2186}));
  EXPECT_EQ(random.below((1LL << 40) + 1), 803563169809);  // randrange(2**40 + 1)
  EXPECT_EQ(random.between(-5, 5), 4);
  EXPECT_EQ(random.between(-(1LL << 62), 1LL << 61), -2631444795571613963);

  const std::vector<char> letters = {'a', 'b', 'c', 'd', 'e', 'f', 'g'};
  EXPECT_EQ(random.choice(letters), 'a');
  EXPECT_EQ(random.choices(letters, 6), (std::vector<char>{'a', 'c', 'b', 'd', 'a', 'd'}));

  Indices numbers(12);
  std::iota(numbers.begin(), numbers.end(), 0);
  random.shuffle(numbers);
  EXPECT_EQ(numbers, (Indices{4, 2, 11, 5, 7, 1, 8, 6, 0, 9, 10, 3}));

  EXPECT_EQ(random.sample_indices(10, 5), (Indices{2, 8, 1, 4, 9}));
  EXPECT_EQ(random.sample_indices(1000, 5), (Indices{573, 835, 698, 185, 105}));
  EXPECT_EQ(random.sample_indices(1000, 8), (Indices{595, 584, 654, 192, 381, 99, 560, 729}));
  // 85 is the longest population that CPython draws eight of from a list.
  EXPECT_EQ(random.sample_indices(85, 8), (Indices{8, 72, 7, 79, 26, 63, 68, 54}));
  EXPECT_EQ(random.sample_indices(86, 8), (Indices{40, 59, 74, 58, 46, 38, 31, 23}));
  EXPECT_EQ(random.sample_indices(6, 6), (Indices{5, 1, 0, 2, 4, 3}));
  EXPECT_EQ(random.sample_indices(6, 0), Indices{});

  EXPECT_EQ(random.uuid(), "72e6cc3a-babc-4d20-97ee-05cde00902c7");
  EXPECT_EQ(random.uuid(), "12bd4ace-faec-4d38-9be4-bcfc49b64a08");
}

// x = (x * 31 + r.getrandbits(32)) % 2**64 over 100000 words of random.Random(20261130), then r.random().
TEST(PythonRandom, StaysEqualOverManyRefills) {
  PythonRandom random(20261130);
  uint64_t x = 0;
  for (int i = 0; i < 100000; ++i) {
    x = x * 31 + random.bits(32);
  }
  EXPECT_EQ(x, 7782545081096668225U);
  EXPECT_EQ(random.random(), 0.6410908687836648);
}

TEST(PythonRandom, HandsOutItemsInTheOrderOfTheirIndices) {
  PythonRandom indices(3);
  PythonRandom items(3);
  const std::vector<int> squares = {0, 1, 4, 9, 16, 25};
  std::vector<int> expected;
  for (const int64_t i : indices.sample_indices(6, 3)) {
    expected.push_back(static_cast<int>(i * i));
  }
  EXPECT_EQ(items.sample(squares, 3), expected);
}

}  // namespace
}  // namespace winnow::eval
