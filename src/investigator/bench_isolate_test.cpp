#include "investigator/bench_isolate.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "investigator/older_methods.h"

namespace plumb::investigator {
namespace {

TEST(BenchIsolate, ConfirmsNothingWrongAndFindsWhatTheModelForesees) {
  const IsolateBenchResult result = bench_isolate({.investigations = 170, .switches = 10, .seed = 7});
  int modelled = 0;
  int right = 0;
  for (const WorldScore& w : result.worlds) {
    EXPECT_EQ(w.runs, 10) << w.name;
    EXPECT_EQ(w.wrong_confirmed, 0) << w.name;
    EXPECT_LE(w.wrong_stated, 1) << w.name;
    EXPECT_LE(w.right + w.undecided + w.missed + w.wrong_confirmed, w.runs) << w.name;
    if (!w.modelled) continue;
    modelled += w.runs;
    right += w.right;
  }
  EXPECT_GE(right, modelled * 0.95);
  ASSERT_EQ(result.calibration.size(), 3u);
  for (const CalibrationBin& b : result.calibration) {
    ASSERT_GE(b.count, 100);
    EXPECT_NEAR(b.stated, b.held, 0.1) << b.low;
  }
}

TEST(BenchIsolate, EqualSeedsGiveEqualNumbersAndTheTablesAreThoseOfTheJson) {
  const IsolateBenchOptions options{.investigations = 34, .switches = 6, .seed = 3};
  const IsolateBenchResult result = bench_isolate(options);
  const std::string json = isolate_bench_json(result);
  EXPECT_EQ(json, isolate_bench_json(bench_isolate(options)));
  const auto j = nlohmann::json::parse(json);
  EXPECT_EQ(j["worlds"].size(), result.worlds.size());
  EXPECT_EQ(j["seed"], 3);
  const std::string markdown = isolate_bench_markdown(result);
  for (const WorldScore& w : result.worlds) EXPECT_NE(markdown.find("| " + w.name + " |"), std::string::npos);
}

TEST(OlderMethods, FindWhatTheyAreMadeFor) {
  const Variant bad(8, true);
  const Variant good(8, false);
  const auto single = [](const Variant& v) { return static_cast<bool>(v[5]); };
  const auto both = [](const Variant& v) { return v[2] && v[6]; };
  const OlderResult turned = one_at_a_time(bad, good, single);
  EXPECT_EQ(turned.culprits, std::vector<std::size_t>{5});
  EXPECT_EQ(turned.launches, 16);
  EXPECT_EQ(one_at_a_time(bad, good, both).culprits, (std::vector<std::size_t>{2, 6}));
  const OlderResult halved = by_ddmin(bad, good, single);
  EXPECT_EQ(halved.culprits, std::vector<std::size_t>{5});
  EXPECT_LE(halved.launches, 6);
  EXPECT_EQ(by_ddmin(bad, good, both).culprits, (std::vector<std::size_t>{2, 6}));
}

TEST(TruthDraw, FollowsThePrior) {
  constexpr int kDraws = 4000;
  int singles = 0;
  double bad = 0;
  Rng rng(1);
  for (int i = 0; i < kDraws; ++i) {
    const TruthDraw t = draw_truth(rng, 12);
    singles += t.rule.members.size() == 1 ? 1 : 0;
    bad += t.bad_rate / kDraws;
  }
  EXPECT_NEAR(singles, kDraws * 0.5, 4 * std::sqrt(kDraws * 0.25));
  EXPECT_NEAR(bad, 0.7 * 20 / 20.5 + 0.3 * 2 / 3, 0.015);
}

}  // namespace
}  // namespace plumb::investigator
