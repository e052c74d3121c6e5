#include "investigator/posterior.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;

std::vector<std::size_t> first(std::size_t count) {
  std::vector<std::size_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = i;
  return all;
}

GroupTest::Options options(std::size_t switches, std::vector<double> ranks = {}) {
  return {.suspects = first(switches), .bad = Variant(switches, true), .both_sides = false, .ranks = std::move(ranks)};
}

GroupTest::Choice any_variant(std::size_t switches, std::uint64_t seed) {
  return {.starts = {Variant(switches, true), Variant(switches, false)},
          .turn = [](Variant v, std::size_t s, bool side) -> std::optional<Variant> {
            v[s] = side;
            return v;
          },
          .cost = [](const Variant&) { return 1.0; },
          .refused = {},
          .seed = seed};
}

TEST(GroupTest, ThePosteriorIsBayesRuleByHand) {
  // One suspect: rules base, none, it alone, other. Failing variant failed twice, passing one passed once.
  GroupTest test(options(1));
  test.add({{true}, true});
  test.add({{true}, true});
  test.add({{false}, false});
  // Integral of rate^k (1-rate)^(n-k) over Beta(a, b), as products of predictive probabilities.
  const auto run = [](double a, double b, int fails, int passes) {
    double p = 1;
    for (int i = 0; i < fails; ++i) p *= (a + i) / (a + b + i);
    for (int i = 0; i < passes; ++i) p *= (b + i) / (a + b + fails + i);
    return p;
  };
  const auto bad = [&](int f, int p) { return 0.7 * run(20, 0.5, f, p) + 0.3 * run(2, 1, f, p); };
  const auto good = [&](int f, int p) { return 0.7 * run(0.5, 30, f, p) + 0.3 * run(0.5, 6, f, p); };
  const double alone = 0.5 * bad(2, 0) * good(0, 1);
  const double base = 0.06 * bad(2, 1);
  const double none = 0.06 * good(2, 1);
  const double other = 0.06 * run(0.5, 0.5, 2, 0) * run(0.5, 0.5, 0, 1);
  const double sum = alone + base + none + other;
  const Posterior p = test.of({Class::any_of, {0}}, {true});
  EXPECT_NEAR(p.of_hypothesis, alone / sum, 1e-12);
  EXPECT_NEAR(p.of_hypothesis_flat, alone / sum, 1e-12);
  EXPECT_NEAR(p.of_other, other / sum, 1e-12);
  EXPECT_NEAR(test.marginals()[0], alone / sum, 1e-12);
  EXPECT_EQ(test.best().hypothesis, (Hypothesis{Class::any_of, {0}}));
}

TEST(GroupTest, WhatALaunchTellsIsTheMutualInformationByHand) {
  // Nothing known of two suspects, only their singles possible but for a remainder: compare with the sum over rules.
  GroupTest test(options(2));
  const Variant half{true, false};
  const double direct = test.information(half);
  // Before any launch every rule predicts the same two rates.
  const double bad = 0.7 * 20 / 20.5 + 0.3 * 2 / 3;
  const double good = 0.7 * 0.5 / 30.5 + 0.3 * 0.5 / 6.5;
  const auto h = [](double p) { return -(p * std::log2(p) + (1 - p) * std::log2(1 - p)); };
  // Fails under: base 0.06, the first alone 0.25, the pair by `or` 0.12; passes: none 0.06, the second 0.25, `and`
  // 0.12.
  const double total = 0.5 + 0.24 + 0.18;  // no sets of three
  const double w_bad = (0.06 + 0.25 + 0.12) / total;
  const double w_good = (0.06 + 0.25 + 0.12) / total;
  const double w_other = 0.06 / total;
  const double p = w_bad * bad + w_good * good + w_other * 0.5;
  EXPECT_NEAR(direct, h(p) - w_bad * h(bad) - w_good * h(good) - w_other * 1.0, 1e-9);
}

TEST(GroupTest, RanksAreMixedHalfAndHalfWithAFlatPrior) {
  GroupTest test(options(4, {1, 0, 0, 0}));
  const Posterior ranked = test.of({Class::any_of, {0}}, {true});
  const Posterior last = test.of({Class::any_of, {3}}, {true});
  EXPECT_NEAR(ranked.of_hypothesis / last.of_hypothesis, (0.5 + 0.125) / 0.125, 1e-9);
  EXPECT_NEAR(ranked.of_hypothesis_flat, last.of_hypothesis_flat, 1e-12);
}

struct Found {
  int launches = 0;
  GroupTest::Belief belief;
  double check = 1;
};

// Group tests in a world given as the failure rate of a variant.
template <typename Rate>
Found search(std::size_t switches, std::uint64_t seed, Rate rate) {
  GroupTest test(options(switches));
  Rng rng(seed);
  const auto launch = [&](const Variant& v) { test.add({v, rng.uniform() < rate(v)}); };
  launch(Variant(switches, true));
  launch(Variant(switches, false));
  Found found;
  constexpr int kMost = 60;
  while (found.launches < kMost) {
    found.belief = test.best();
    if (found.belief.posterior >= 0.97 && found.belief.hypothesis.kind != Class::other) break;
    const auto next = test.next(any_variant(switches, derive_seed(seed, std::to_string(found.launches))));
    if (!next) break;
    launch(*next);
    ++found.launches;
  }
  found.check = test.predictive_check(found.belief.hypothesis, found.belief.sides);
  return found;
}

TEST(GroupTest, FindsOneCulpritAmongNineteenInAFewLaunches) {
  int launches = 0;
  constexpr int kWorlds = 19;
  for (std::size_t culprit = 0; culprit < kWorlds; ++culprit) {
    const Found f = search(kWorlds, culprit, [&](const Variant& v) { return v[culprit] ? 1.0 : 0.0; });
    EXPECT_EQ(f.belief.hypothesis, (Hypothesis{Class::any_of, {culprit}})) << culprit;
    EXPECT_GE(f.check, 0.01);
    launches += f.launches;
  }
  // The bound is log2(19 / 0.5) = 5.2 bits; one at a time takes 19 or 38.
  EXPECT_LE(launches, kWorlds * 9);
}

TEST(GroupTest, FindsPairsByOrAndByAnd) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::size_t a = seed % 12;
    const std::size_t b = (a + 1 + seed % 11) % 12;
    const std::vector<std::size_t> members{std::min(a, b), std::max(a, b)};
    const Found any = search(12, seed, [&](const Variant& v) { return v[a] || v[b] ? 1.0 : 0.0; });
    EXPECT_EQ(any.belief.hypothesis, (Hypothesis{Class::any_of, members})) << seed;
    const Found both = search(12, seed, [&](const Variant& v) { return v[a] && v[b] ? 1.0 : 0.0; });
    EXPECT_EQ(both.belief.hypothesis, (Hypothesis{Class::all_of, members})) << seed;
    EXPECT_LE(any.launches, 18);
    EXPECT_LE(both.launches, 18);
  }
}

TEST(GroupTest, AFaultThatShowsInSixLaunchesOfTenCostsLaunchesAndDoesNotMislead) {
  int wrong = 0;
  int found = 0;
  constexpr std::uint64_t kWorlds = 40;
  for (std::uint64_t seed = 0; seed < kWorlds; ++seed) {
    const std::size_t culprit = seed % 12;
    const Found f = search(12, seed, [&](const Variant& v) { return v[culprit] ? 0.6 : 0.0; });
    if (f.belief.posterior < 0.97) continue;
    (f.belief.hypothesis == Hypothesis{Class::any_of, {culprit}} ? found : wrong) += 1;
  }
  EXPECT_LE(wrong, 2);
  EXPECT_GE(found, 25);
}

TEST(GroupTest, TheCheckNoticesASwitchThatTheRuleDoesNotName) {
  // The rule is s0 alone, but launches it calls bad fail only with s1 on too.
  GroupTest test(options(3));
  for (int i = 0; i < 10; ++i) {
    test.add({{true, true, i % 2 == 0}, true});
    test.add({{true, false, i % 3 == 0}, false});
    test.add({{false, i % 2 == 0, false}, false});
  }
  EXPECT_LT(test.predictive_check({Class::any_of, {0}}, {true}), 0.01);
  EXPECT_GE(test.predictive_check({Class::all_of, {0, 1}}, {true, true}), 0.01);
}

TEST(GroupTest, DoesNotLaunchWhatIsRefusedAndPrefersCheapLaunches) {
  GroupTest test(options(4));
  test.add({Variant(4, true), true});
  test.add({Variant(4, false), false});
  GroupTest::Choice choice = any_variant(4, 1);
  std::set<Variant> refused;
  for (int i = 0; i < 6; ++i) {
    const auto next = test.next(choice);
    ASSERT_TRUE(next);
    EXPECT_TRUE(refused.insert(*next).second);
    choice.refused.push_back(*next);
  }
  choice.refused.clear();
  // Ten times the seconds for whatever has s0 off: an even split of the rest is worth more a second.
  choice.cost = [](const Variant& v) { return v[0] ? 1.0 : 10.0; };
  EXPECT_TRUE((*test.next(choice))[0]);
}

TEST(GroupTest, VariantsOfOneProcessAreOneLaunchOfEachGroup) {
  // By hand, one suspect: bad fails and good passes in one process, three times bad and twice good.
  constexpr std::int64_t kProcess = 7;
  GroupTest once(options(1));
  once.add({{true}, true});
  once.add({{false}, false});
  GroupTest often(options(1));
  for (int i = 0; i < 3; ++i) often.add({{true}, true, kProcess});
  for (int i = 0; i < 2; ++i) often.add({{false}, false, kProcess});
  const Hypothesis single{Class::any_of, {0}};
  const Hypothesis base{Class::base, {}};
  const double agreeing = std::pow(1 - GroupTest::kAlone, 3);  // the further ones: two bad, one good
  const double odds_once = once.of(single, {true}).of_hypothesis / once.of_other();
  const double odds_often = often.of(single, {true}).of_hypothesis / often.of_other();
  EXPECT_NEAR(odds_often / odds_once, agreeing, 1e-9);
  // A rule that calls all five alike has two that stand alone.
  const double base_once = once.of(base, {}).of_hypothesis;
  EXPECT_GT(base_once, 0);
  EXPECT_LT(often.of(base, {}).of_hypothesis, base_once * 0.05);
  EXPECT_NEAR(often.bad_rate(single, {true}), once.bad_rate(single, {true}), 1e-12);
}

TEST(GroupTest, AskingOftenInOneBadProcessNamesNoSwitch) {
  // Everything fails there, whatever the variant: that is one bad launch.
  GroupTest test(options(8));
  test.add({Variant(8, true), true});
  test.add({Variant(8, false), false});
  Rng rng(3);
  for (int i = 0; i < 20; ++i) {
    Variant v(8, false);
    for (std::size_t s = 0; s < 8; ++s) v[s] = rng.below(2) == 1;
    test.add({v, true, 5});
  }
  EXPECT_FALSE(test.contrasted());
  test.add({Variant(8, false), true, 5});
  EXPECT_LT(test.best().hypothesis.members.empty() ? 0 : test.best().posterior, 0.9);
  test.add({Variant(8, false), false, 5});
  EXPECT_TRUE(test.contrasted());
}

TEST(GroupTest, KnowsWhatTheProcessShowedWhenItChoosesTheNextVariant) {
  GroupTest test(options(6));
  test.add({Variant(6, true), false, 4});  // a fault that does not show in this launch
  test.add({Variant(6, true), true});
  test.add({Variant(6, true), true});
  test.add({Variant(6, false), false});
  Variant half(6, false);
  for (std::size_t s = 0; s < 3; ++s) half[s] = true;
  EXPECT_GT(test.information(half), 4 * test.information(half, 4));
}

}  // namespace
}  // namespace plumb::investigator
