// Deployments whose reference, all off, does not launch.

#include <gtest/gtest.h>

#include "investigator/simulated_worlds.h"

namespace plumb::investigator {
namespace {

using testing::plan_of;
using testing::play;
using testing::Played;
using testing::SimulatedWorld;
using testing::switches_all_on;

int launches_named(const History& history, std::string_view prefix) {
  int count = 0;
  for (const LaunchRecord& l : history.launches) count += l.label.starts_with(prefix) ? 1 : 0;
  return count;
}

void expect_nothing_asked_of_what_did_not_start(const Played& p) {
  for (const LaunchRecord& l : p.history.launches)
    if (l.status == LaunchRecord::Status::infeasible) {
      EXPECT_TRUE(l.trials.empty()) << l.label;
    }
}

std::string reasons(const Played& p) {
  std::string text = p.findings.verdict.verdict;
  for (const std::string& r : p.findings.reasons) text += "; " + r;
  return text;
}

TEST(Reference, ASwitchThatMustStayOnIsFoundByHalvingAndLeftOn) {
  constexpr int kSwitches = 16;
  for (std::size_t stuck = 0; stuck < kSwitches; ++stuck) {
    const std::size_t guilty = (stuck + 7) % kSwitches;
    SimulatedWorld world{.faults = {{.literals = {{guilty, true}}}}, .seed = stuck};
    world.does_not_start = [&](const Variant& v) { return !v[stuck]; };
    const Played p = play(plan_of(switches_all_on(kSwitches), stuck), world);
    const Verdict& v = p.findings.verdict;
    EXPECT_EQ(v.verdict, "confirmed") << stuck << " " << reasons(p);
    ASSERT_EQ(v.culprits.size(), 1u) << stuck;
    EXPECT_EQ(v.culprits[0].switch_name, "s" + std::to_string(guilty));
    ASSERT_EQ(p.findings.unswitchable.size(), 1u);
    EXPECT_EQ(p.findings.unswitchable[0].index, stuck);
    EXPECT_TRUE(p.findings.unswitchable[0].alone);
    EXPECT_NE(p.findings.unswitchable[0].message.find("assertion failed"), std::string::npos);
    Variant all_but_one(kSwitches, false);
    all_but_one[stuck] = true;
    EXPECT_EQ(p.findings.reference, all_but_one);
    // As deployed, four halvings of 16, the one alone, and all others.
    EXPECT_LE(launches_named(p.history, "start/"), 7);
    for (const LaunchRecord& l : p.history.launches)
      if (!l.label.starts_with("start/") && l.label != "ground/reference/1") {
        EXPECT_TRUE(l.variant[stuck]) << l.label << ": what was learnt is proposed again";
      }
    expect_nothing_asked_of_what_did_not_start(p);
  }
}

TEST(Reference, AGuiltySwitchThatCannotBeTurnedIsNamedAmongWhatMayBeTheCause) {
  SimulatedWorld world{.faults = {{.literals = {{2, true}}}}, .seed = 4};
  world.does_not_start = [](const Variant& v) { return !v[2]; };
  const Played p = play(plan_of(switches_all_on(6), 4), world);
  // Whatever can be turned, it fails: that switch and a step under none cannot be told apart.
  EXPECT_EQ(p.findings.verdict.verdict, "inconclusive") << reasons(p);
  EXPECT_TRUE(p.findings.verdict.culprits.empty());
  EXPECT_NE(reasons(p).find("or a switch that could not be turned: s2"), std::string::npos) << reasons(p);
}

TEST(Reference, TwoThatCannotBothBeOffAreLearntAsAPair) {
  constexpr std::uint64_t kWorlds = 12;
  for (std::uint64_t seed = 0; seed < kWorlds; ++seed) {
    const std::size_t a = seed % 8, b = (a + 1 + seed % 7) % 8;
    const std::size_t guilty = seed % 3 == 0 ? a : seed % 3 == 1 ? b : (a + 4) % 8;
    SimulatedWorld world{.faults = {{.literals = {{guilty, true}}}}, .seed = seed};
    world.does_not_start = [&](const Variant& v) { return !v[a] && !v[b]; };
    const Played p = play(plan_of(switches_all_on(8), seed), world);
    // Rules that differ only where nothing starts cannot be told apart, which may leave the one kept on undecided.
    const std::string& verdict = p.findings.verdict.verdict;
    const bool may_be_open = guilty == std::max(a, b) && verdict == "inconclusive";
    EXPECT_TRUE(verdict == "confirmed" || may_be_open) << seed << " " << reasons(p);
    for (const Culprit& culprit : p.findings.verdict.culprits)
      EXPECT_EQ(culprit.switch_name, "s" + std::to_string(guilty)) << seed << " " << reasons(p);
    ASSERT_EQ(p.findings.unswitchable.size(), 1u);
    EXPECT_FALSE(p.findings.unswitchable[0].alone);
    EXPECT_EQ(p.findings.unswitchable[0].index, std::max(a, b));
    EXPECT_EQ(p.findings.unswitchable[0].with, std::vector<std::string>{"s" + std::to_string(std::min(a, b))});
    for (const LaunchRecord& l : p.history.launches)
      if (!l.label.starts_with("start/") && l.label != "ground/reference/1") {
        EXPECT_NE(l.status, LaunchRecord::Status::infeasible) << seed << " " << l.label;
      }
    expect_nothing_asked_of_what_did_not_start(p);
  }
}

TEST(Reference, WithoutAnyOffSideThatStartsThePassRateAloneIsMeasured) {
  const Variant deployed(4, true);
  SimulatedWorld world{.seed = 1};
  world.does_not_start = [&](const Variant& v) { return v != deployed; };
  const Played sound = play(plan_of(switches_all_on(4), 1), world);
  EXPECT_EQ(sound.findings.verdict.verdict, "clean") << reasons(sound);
  EXPECT_NE(reasons(sound).find("no reference launches"), std::string::npos);
  EXPECT_EQ(sound.findings.unswitchable.size(), 4u);
  SimulatedWorld broken{.faults = {{.literals = {{1, true}}}}, .seed = 1};
  broken.does_not_start = world.does_not_start;
  const Played p = play(plan_of(switches_all_on(4), 1), broken);
  EXPECT_NE(p.findings.verdict.verdict, "clean") << reasons(p);
  EXPECT_TRUE(p.findings.verdict.culprits.empty());
}

TEST(Reference, SwitchesThatNeedOneThatStaysOnStayAsTheyMay) {
  Deployment d = switches_all_on(4);
  d.switches[0].needs = {"s1"};  // s1 off takes s0 along
  SimulatedWorld world{.faults = {{.literals = {{3, true}}}}, .seed = 2};
  world.does_not_start = [](const Variant& v) { return !v[0]; };
  const Played p = play(plan_of(d, 2), world);
  EXPECT_EQ(p.findings.reference, (Variant{true, true, false, false}));
  EXPECT_EQ(p.findings.unswitchable.size(), 2u);
  EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << reasons(p);
}

TEST(Reference, NoCombinationOfStartFailuresAccusesAnInnocent) {
  int confirmed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const std::size_t guilty = rng.below(8), a = rng.below(8), b = rng.below(8), c = rng.below(8);
    SimulatedWorld world{.faults = {{.literals = {{guilty, true}}}}, .seed = seed};
    world.does_not_start = [&](const Variant& v) { return !v[a] || (!v[b] && !v[c]); };
    const Played p = play(plan_of(switches_all_on(8), seed), world);
    for (const Culprit& culprit : p.findings.verdict.culprits)
      EXPECT_EQ(culprit.switch_name, "s" + std::to_string(guilty)) << seed << " " << reasons(p);
    confirmed += p.findings.verdict.verdict == "confirmed" ? 1 : 0;
    EXPECT_NE(p.findings.verdict.verdict, "clean") << seed;
    expect_nothing_asked_of_what_did_not_start(p);
  }
  EXPECT_GE(confirmed, 12);
}

}  // namespace
}  // namespace plumb::investigator
