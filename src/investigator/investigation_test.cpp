#include "investigator/investigation.h"

#include <gtest/gtest.h>

#include "investigator/simulated_worlds.h"

namespace plumb::investigator {
namespace {

using testing::plan_of;
using testing::play;
using testing::Played;
using testing::SimulatedFault;
using testing::SimulatedWorld;
using testing::switches_all_on;

std::set<std::string> names(const Verdict& v) {
  std::set<std::string> all;
  for (const Culprit& c : v.culprits) all.insert(c.switch_name + "=" + c.side);
  return all;
}

std::string story(const Played& p) {
  std::string text = p.findings.verdict.verdict + ":";
  for (const auto& n : names(p.findings.verdict)) text += " " + n;
  for (const auto& r : p.findings.reasons) text += "; " + r;
  for (const auto& l : p.history.launches) text += "\n  " + l.label;
  return text;
}

const std::vector<std::set<std::string>>& visible_in() {
  static const std::vector<std::set<std::string>> kSets{
      {}, {"hit"}, {"turns"}, {"boundary"}, {"needle@1024"}, {"needle@512", "needle@1024"}, {"hit", "turns"}};
  return kSets;
}

TEST(Investigation, ConfirmsASingleCulpritOfEachKind) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::size_t culprit = seed % 4;
    SimulatedWorld world{.faults = {{.literals = {{culprit, true}}, .cells = visible_in()[seed % visible_in().size()]}},
                         .seed = seed};
    const Played p = play(plan_of(switches_all_on(4), seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << "seed " << seed << " " << story(p);
    EXPECT_EQ(names(p.findings.verdict), std::set<std::string>{"s" + std::to_string(culprit) + "=on"})
        << "seed " << seed;
    EXPECT_EQ(p.findings.verdict.klass, "or");
    EXPECT_EQ(p.findings.verdict.exit_code(), 1);
    EXPECT_GE(p.findings.verdict.posterior.value(), 0.95);
    // A bit-identical deployment needs few launches: this is what keeps the demo short.
    EXPECT_LE(world.asked_launches, 22) << "seed " << seed;
  }
}

TEST(Investigation, ConfirmsFaultsThatOnlySomePromptsShow) {
  int confirmed = 0;
  constexpr int kWorlds = 100;
  for (std::uint64_t seed = 0; seed < kWorlds; ++seed) {
    SimulatedWorld world{.faults = {{.literals = {{seed % 4, true}}, .trial_rate = 0.25}}, .seed = seed};
    const Played p = play(plan_of(switches_all_on(4), seed), world);
    if (p.findings.verdict.verdict == "confirmed") {
      EXPECT_EQ(names(p.findings.verdict), std::set<std::string>{"s" + std::to_string(seed % 4) + "=on"});
      ++confirmed;
    }
    EXPECT_NE(p.findings.verdict.verdict, "clean") << "seed " << seed;
  }
  EXPECT_GE(confirmed, 90);
}

TEST(Investigation, CallsASoundDeploymentCleanAndMeetsItsBound) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimulatedWorld world{.seed = seed};
    const Played p = play(plan_of(switches_all_on(4), seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "clean") << story(p);
    EXPECT_LE(p.findings.verdict.trial_failure_rate_95.value(), 0.05);
    EXPECT_EQ(p.findings.verdict.klass, "none");
    EXPECT_TRUE(p.findings.verdict.culprits.empty());
    EXPECT_EQ(p.findings.verdict.exit_code(), 0);
  }
}

TEST(Investigation, IsNotCleanWhenTheCacheCouldNotBeTested) {
  SimulatedWorld world{.reports_hits = false};
  const Played p = play(plan_of(switches_all_on(4), 1), world);
  EXPECT_EQ(p.findings.verdict.verdict, "inconclusive");
  ASSERT_EQ(p.findings.verdict.not_covered.size(), 1u);
  EXPECT_EQ(p.findings.verdict.exit_code(), 2);
}

// Plays an investigation in which launches die once: of `label`, when its trial number `at` is asked.
Played play_with_a_death(const Plan& plan, SimulatedWorld& world, const std::string& label, std::size_t at) {
  History history;
  for (int i = 0; i < testing::kMaxSteps; ++i) {
    NextStep next = next_step(plan, history);
    if (!next.wanted) return {next.findings, history};
    world.answer(*next.wanted, history);
    LaunchRecord& l = history.launches.back();
    if (l.label != label || l.trials.size() <= at) continue;
    l.status = LaunchRecord::Status::died;
    l.message = "process server ended";
    l.trials.resize(at + 1);
    TrialRecord& last = l.trials.back();
    last.steps[0].grade = last.grade = Grade::infrastructure;
    last.steps[0].prompt_tokens = last.steps[0].cached_tokens = std::nullopt;
    last.steps[0].text = "connection closed";
  }
  return {};
}

TEST(Investigation, ALaunchThatDiesLeavesNoGapAndNothingFalseInTheReport) {
  const Plan plan = plan_of(switches_all_on(4), 3);
  SimulatedWorld whole{.seed = 3};
  const Played undisturbed = play(plan, whole);
  ASSERT_EQ(undisturbed.findings.verdict.verdict, "clean");
  for (const char* label : {"ground/reference/1", "ground/deployed/1", "ground/deployed/2", "ground/reference/2"})
    for (std::size_t at = 0; at < undisturbed.history.find(label)->trials.size(); ++at) {
      SimulatedWorld world{.seed = 3};
      const Played p = play_with_a_death(plan, world, label, at);
      EXPECT_EQ(p.findings.verdict.verdict, "clean") << label << " at " << at << story(p);
      EXPECT_TRUE(p.findings.verdict.not_covered.empty()) << label << " at " << at;
      EXPECT_NE(p.history.find(std::string(label) + "/retry"), nullptr) << label << " at " << at;
      EXPECT_EQ(damage_of(plan, p.history), std::nullopt) << label << " at " << at;
    }
}

TEST(Investigation, AHistoryThatWentOnAfterADeathWithoutAnotherTryIsNotDamaged) {
  const Plan plan = plan_of(switches_all_on(4), 3);
  SimulatedWorld world{.seed = 3};
  History history = play(plan, world).history;
  for (LaunchRecord& l : history.launches)
    if (l.label == "ground/deployed/1") {
      l.status = LaunchRecord::Status::died;
      l.trials.pop_back();
    }
  EXPECT_EQ(damage_of(plan, history), std::nullopt);
}

TEST(Investigation, NeverAccusesASwitchWhenTrialsFailByChance) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SimulatedWorld world{.seed = seed, .noise = 0.002 * static_cast<double>(seed % 20)};
    const Played p = play(plan_of(switches_all_on(4), seed), world);
    EXPECT_TRUE(p.findings.verdict.culprits.empty()) << "seed " << seed << " " << story(p);
  }
}

TEST(Investigation, FindsAFaultUnderNoSwitchUnexplained) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedWorld world{.faults = {{.cells = visible_in()[seed % visible_in().size()]}}, .seed = seed};
    const Played p = play(plan_of(switches_all_on(4), seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "unexplained") << "seed " << seed << story(p);
    EXPECT_EQ(p.findings.verdict.klass, "base");
    EXPECT_TRUE(p.findings.verdict.culprits.empty());
  }
}

TEST(Investigation, NamesABrokenOffSide) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedWorld world{.faults = {{.literals = {{seed % 4, false}}}}, .seed = seed};
    Deployment d = switches_all_on(4);
    if (seed % 2 == 0) d.switches[seed % 4].deployed_on = false;  // then as deployed and reference both fail
    const Played p = play(plan_of(d, seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << "seed " << seed << " " << story(p);
    EXPECT_EQ(names(p.findings.verdict), std::set<std::string>{"s" + std::to_string(seed % 4) + "=off"});
  }
}

TEST(Investigation, FindsPairsThatBreakOnlyTogether) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::size_t a = seed % 4;
    const std::size_t b = (a + 1 + seed / 4 % 3) % 4;
    SimulatedWorld world{.faults = {{.literals = {{a, true}, {b, true}}, .all_needed = true}}, .seed = seed};
    const Played p = play(plan_of(switches_all_on(4), seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << story(p);
    EXPECT_EQ(p.findings.verdict.klass, "and");
    EXPECT_EQ(names(p.findings.verdict).size(), 2u);
  }
}

TEST(Investigation, FindsTwoCulpritsOfWhichEachIsEnough) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::size_t a = seed % 4;
    const std::size_t b = (a + 1 + seed / 4 % 3) % 4;
    // Same cells: neither cures alone. Different cells: found one after the other.
    const std::set<std::string> other = seed % 2 == 0 ? std::set<std::string>{} : std::set<std::string>{"hit"};
    SimulatedWorld world{.faults = {{.literals = {{a, true}}, .cells = {}}, {.literals = {{b, true}}, .cells = other}},
                         .seed = seed};
    if (seed % 2 == 1) world.faults[0].cells = {"turns"};
    const Played p = play(plan_of(switches_all_on(4), seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << "seed " << seed << story(p);
    EXPECT_EQ(p.findings.verdict.klass, "or");
    EXPECT_EQ(names(p.findings.verdict),
              (std::set<std::string>{"s" + std::to_string(a) + "=on", "s" + std::to_string(b) + "=on"}));
  }
}

// Worlds the planner does not model. Whatever it says, what it confirms must be true.
struct Misfit {
  const char* name;
  std::vector<SimulatedFault> faults;
  double noise;
  std::set<std::string> truth;  // empty: nothing may be confirmed
  int least = 0;                // worlds of 50 in which it is found nevertheless
};

TEST(Investigation, NeverConfirmsAWrongSetInWorldsItDoesNotModel) {
  const std::vector<Misfit> misfits{
      {"shows in 60 % of launches", {{.literals = {{1, true}}, .launch_rate = 0.6}}, 0, {"s1=on"}, 30},
      {"two, each in 60 % of launches",
       {{.literals = {{1, true}}, .launch_rate = 0.6}, {.literals = {{2, true}}, .launch_rate = 0.6}},
       0,
       {"s1=on", "s2=on"}},
      {"base, half the launches", {{.launch_rate = 0.5}}, 0, {}},
      {"base, 30 % of launches", {{.launch_rate = 0.3}}, 0, {}},
      {"weak and noisy", {{.literals = {{3, true}}, .trial_rate = 0.3}}, 0.05, {"s3=on"}, 10},
      {"three together",
       {{.literals = {{0, true}, {1, true}, {2, true}}, .all_needed = true}},
       0,
       {"s0=on", "s1=on", "s2=on"},
       45},
      {"a and not b", {{.literals = {{0, true}, {1, false}}, .all_needed = true}}, 0, {}},
      {"a pair or a third",
       {{.literals = {{0, true}, {1, true}}, .all_needed = true}, {.literals = {{2, true}}}},
       0,
       {"s0=on", "s1=on", "s2=on"}},
      {"broken off side in half the launches", {{.literals = {{2, false}}, .launch_rate = 0.5}}, 0, {"s2=off"}},
  };
  constexpr std::uint64_t kWorlds = 50;
  for (const Misfit& misfit : misfits) {
    int wrong = 0;
    int confirmed = 0;
    for (std::uint64_t seed = 0; seed < kWorlds; ++seed) {
      SimulatedWorld world{.faults = misfit.faults, .seed = seed, .noise = misfit.noise};
      const Played p = play(plan_of(switches_all_on(4), seed), world);
      const Verdict& v = p.findings.verdict;
      if (v.verdict != "confirmed") continue;
      ++confirmed;
      if (misfit.name == std::string("a and not b") && names(v) == std::set<std::string>{"s0=on"}) continue;
      wrong += names(v) == misfit.truth ? 0 : 1;
    }
    EXPECT_LE(wrong, static_cast<int>(kWorlds) / 50) << misfit.name;  // 2 %
    EXPECT_GE(confirmed, misfit.least) << misfit.name;
  }
}

TEST(Investigation, AResumedCaseEndsAsAnUninterruptedOne) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SimulatedWorld world{.faults = {{.literals = {{seed % 4, true}}, .cells = visible_in()[seed]}}, .seed = seed};
    const Plan plan = plan_of(switches_all_on(4), seed);
    const Played whole = play(plan, world);
    for (std::size_t launches = 0; launches <= whole.history.launches.size(); ++launches) {
      History cut;
      cut.launches.assign(whole.history.launches.begin(), whole.history.launches.begin() + static_cast<long>(launches));
      if (launches > 0 && launches < whole.history.launches.size()) {
        LaunchRecord& last = cut.launches.back();
        last.status = LaunchRecord::Status::open;
        last.trials.resize(last.trials.size() / 2);
      }
      const Played again = play(plan, world, cut);
      EXPECT_EQ(again.findings.verdict.verdict, whole.findings.verdict.verdict);
      EXPECT_EQ(names(again.findings.verdict), names(whole.findings.verdict)) << launches;
      EXPECT_EQ(again.history.launches.size(), whole.history.launches.size());
    }
  }
}

TEST(Investigation, ReachingABudgetGivesAWeakerWordNeverConfirmed) {
  for (int restarts = 1; restarts < 20; ++restarts) {
    SimulatedWorld world{.faults = {{.literals = {{1, true}}}}};
    Plan plan = plan_of(switches_all_on(4), 3);
    plan.limits.max_restarts = restarts;
    const Played p = play(plan, world);
    EXPECT_LE(p.history.starts(), restarts);
    const std::string& word = p.findings.verdict.verdict;
    EXPECT_TRUE(word == "suspected" || word == "inconclusive" || word == "confirmed") << word;
    if (word != "inconclusive") {
      EXPECT_EQ(names(p.findings.verdict), std::set<std::string>{"s1=on"});
    }
  }
}

TEST(Investigation, InfeasibleVariantsAreLearntNotFailed) {
  // s2 needs s1: turning s1 off turns s2 off too, turning s2 on turns s1 on.
  Deployment d = switches_all_on(4);
  d.switches[2].needs = {"s1"};
  SimulatedWorld world{.faults = {{.literals = {{1, true}}}}};
  const Played p = play(plan_of(d, 5), world);
  for (const LaunchRecord& l : p.history.launches) EXPECT_TRUE(!l.variant[2] || l.variant[1]) << l.label;
  for (const Culprit& c : p.findings.verdict.culprits) EXPECT_EQ(c.switch_name, "s1");
}

TEST(Investigation, NamesOfSwitchesPlayNoPart) {
  constexpr int kSwitches = 9;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Deployment renamed = switches_all_on(kSwitches);
    for (std::size_t i = 0; i < renamed.switches.size(); ++i)
      renamed.switches[i].name =
          fmt::format("{}{}", i % 2 == 0 ? "zebra" : "attention", kSwitches - static_cast<int>(i));
    const SimulatedFault fault{.literals = {{seed % kSwitches, true}, {(seed + 4) % kSwitches, true}},
                               .all_needed = seed % 2 == 0};
    std::vector<std::vector<Variant>> launched;
    std::vector<std::set<std::size_t>> culprits;
    for (const Deployment& d : {switches_all_on(kSwitches), renamed}) {
      SimulatedWorld world{.faults = {fault}, .seed = seed};
      const Played p = play(plan_of(d, seed), world);
      EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << story(p);
      launched.emplace_back();
      for (const LaunchRecord& l : p.history.launches) launched.back().push_back(l.variant);
      culprits.emplace_back();
      for (const Round& r : p.findings.rounds)
        culprits.back().insert(r.hypothesis.members.begin(), r.hypothesis.members.end());
    }
    EXPECT_EQ(launched[0], launched[1]) << seed;
    EXPECT_EQ(culprits[0], culprits[1]) << seed;
    EXPECT_EQ(culprits[0], (std::set<std::size_t>{seed % kSwitches, (seed + 4) % kSwitches}));
  }
}

TEST(Investigation, OneCulpritAmongNineteenTakesFewLaunches) {
  double launches = 0;
  constexpr int kWorlds = 19;
  for (std::size_t culprit = 0; culprit < kWorlds; ++culprit) {
    SimulatedWorld world{.faults = {{.literals = {{culprit, true}}}}, .seed = culprit};
    const Played p = play(plan_of(switches_all_on(kWorlds), culprit), world);
    EXPECT_EQ(names(p.findings.verdict), std::set<std::string>{"s" + std::to_string(culprit) + "=on"});
    launches += p.findings.verdict.search_launches / static_cast<double>(kWorlds);
  }
  EXPECT_LE(launches, 2 + 1.4 * 5.25);  // two once more, then the bits of one in nineteen; one at a time: 40
}

TEST(Investigation, BothSidesOfASwitchMayBreakWhatIsDeployedAndWhatIsReferredTo) {
  // s1 breaks on, s4 breaks off: every variant fails but those with s1 off and s4 on.
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SimulatedWorld world{.faults = {{.literals = {{1, true}, {4, false}}}}, .seed = seed};
    const Played p = play(plan_of(switches_all_on(6), seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << story(p);
    EXPECT_EQ(names(p.findings.verdict), (std::set<std::string>{"s1=on", "s4=off"})) << story(p);
  }
}

TEST(Investigation, AModelThatAnswersNothingIsInconclusive) {
  SimulatedWorld world{.noise = 1};
  const Played p = play(plan_of(switches_all_on(2), 1), world);
  EXPECT_EQ(p.findings.verdict.verdict, "inconclusive");
  EXPECT_FALSE(p.findings.wording.has_value());
  EXPECT_FALSE(p.findings.verdict.not_covered.empty());
}

TEST(Investigation, RequestsTurnSwitchesWithOneLaunchAndTheSameVerdict) {
  using testing::turned_by_requests;
  int launches[2] = {0, 0};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::size_t a = seed % 10;
    const std::size_t b = (seed + 3) % 10;
    const bool pair = seed % 3 != 0;
    SimulatedFault fault{.literals = {{a, seed % 5 != 0}}, .cells = visible_in()[seed % visible_in().size()]};
    if (pair) fault.literals = {{a, true}, {b, true}};
    fault.all_needed = seed % 3 == 2;
    Played played[2];
    for (const bool by_request : {false, true}) {
      Deployment d = switches_all_on(10);
      if (by_request) d = turned_by_requests(d);
      SimulatedWorld world{.faults = {fault}, .seed = seed, .by_request = by_request};
      played[by_request ? 1 : 0] = play(plan_of(d, seed), world);
      launches[by_request ? 1 : 0] += played[by_request ? 1 : 0].findings.verdict.search_launches;
    }
    EXPECT_EQ(played[0].findings.verdict.verdict, "confirmed") << story(played[0]);
    EXPECT_EQ(played[1].findings.verdict.verdict, "confirmed") << story(played[1]);
    EXPECT_EQ(names(played[0].findings.verdict), names(played[1].findings.verdict)) << seed;
    EXPECT_GT(played[1].findings.verdict.turned, 0);
    for (const LaunchRecord& l : played[1].history.launches) EXPECT_EQ(l.host == 0, l.starts == 1) << l.label;
    for (const LaunchRecord& l : played[1].history.launches)
      EXPECT_TRUE(l.host == 0 || l.label.starts_with("search/")) << "confirmed in a launch of its own: " << l.label;
  }
  EXPECT_LE(3 * launches[1], launches[0]);
}

TEST(Investigation, SwitchesOfALaunchGetOneLaunchACombination) {
  // Half of the switches need a launch: what a process was started with is never turned in it.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Deployment d = testing::turned_by_requests(switches_all_on(8));
    for (std::size_t s = 0; s < 4; ++s) d.switches[2 * s].apply = "restart";
    const std::size_t culprit = seed % 8;
    SimulatedWorld world{.faults = {{.literals = {{culprit, true}}}}, .seed = seed, .by_request = true};
    const Played p = play(plan_of(d, seed), world);
    EXPECT_EQ(p.findings.verdict.verdict, "confirmed") << story(p);
    EXPECT_EQ(names(p.findings.verdict), std::set<std::string>{"s" + std::to_string(culprit) + "=on"}) << story(p);
    for (const LaunchRecord& l : p.history.launches) {
      if (l.host == 0) continue;
      const Variant& host = p.history.launches[static_cast<std::size_t>(l.host - 1)].variant;
      for (std::size_t s = 0; s < 4; ++s) EXPECT_EQ(host[2 * s], l.variant[2 * s]) << l.label;
    }
  }
}

TEST(Investigation, ALaunchThatIsBadAsAWholeIsNotTakenForASwitch) {
  int wrong = 0;
  constexpr int kWorlds = 150;
  for (std::uint64_t seed = 0; seed < kWorlds; ++seed) {
    SimulatedWorld world{.faults = {{.launch_rate = 0.5}}, .seed = seed, .by_request = true};
    const Played p = play(plan_of(testing::turned_by_requests(switches_all_on(8)), seed), world);
    wrong += p.findings.verdict.verdict == "confirmed" ||
                     (!p.findings.verdict.culprits.empty() && p.findings.verdict.posterior.value_or(0) >= 0.95)
                 ? 1
                 : 0;
  }
  EXPECT_LE(wrong, kWorlds / 20);
}

}  // namespace
}  // namespace plumb::investigator
