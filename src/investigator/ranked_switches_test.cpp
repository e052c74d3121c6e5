#include "investigator/ranked_switches.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "investigator/plan.h"
#include "investigator/simulated_worlds.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

Json suspect(const std::string& file, double prior, const Json& gate) {
  return {{"file", file}, {"hunk", "@@ 7"}, {"function", "f"}, {"prior", prior}, {"gate", gate}};
}
Json env(const std::string& name) { return {{"name", name}, {"kind", "env"}, {"default", "on"}}; }
Json flag(const std::string& name) { return {{"name", name}, {"kind", "flag"}, {"default", "on"}}; }

Deployment four_switches() {
  Deployment d = testing::switches_all_on(4);
  d.switches[0].on.env["MOE_FUSED"] = "1";
  d.switches[1].off.args = {"--no-split_k"};
  d.switches[2].on.args = {"--attention", "fa3"};
  d.switches[3].on.args = {"--attention", "fa2"};
  return d;
}

std::shared_ptr<const RankedSwitches> ranked(const Deployment& d, const Json& suspects) {
  Json document = Json::object();
  document["suspects"] = suspects;
  const auto r = rank_switches(document.dump(), "rank.json", d);
  EXPECT_TRUE(r) << (r ? "" : r.error().message);
  return *r;
}

TEST(RankedSwitches, GatesAreMatchedToWhatTheSidesSet) {
  const Deployment d = four_switches();
  const auto r = ranked(d, {suspect("moe.py", 0.4, env("MOE_FUSED")), suspect("attn.py", 0.2, flag("split-k")),
                            suspect("a.py", 0.1, flag("attention")), suspect("b.py", 0.15, env("SPLIT_K")),
                            suspect("c.py", 0.05, nullptr), suspect("moe2.py", 0.1, env("MOE_FUSED"))});
  EXPECT_DOUBLE_EQ(r->switches[0].weight, 0.5);
  EXPECT_DOUBLE_EQ(r->switches[1].weight, 0.2);
  EXPECT_DOUBLE_EQ(r->switches[2].weight, 0.05);  // shared by the two values
  EXPECT_DOUBLE_EQ(r->switches[3].weight, 0.05);
  ASSERT_EQ(r->switches[0].suspects.size(), 2u);
  EXPECT_EQ(r->switches[0].suspects[0].where, "moe.py:@@ 7 f");
  EXPECT_EQ(r->switches[0].suspects[0].gate, "env MOE_FUSED");
  ASSERT_EQ(r->unmatched.size(), 2u);
  EXPECT_EQ(r->unmatched[0].gate, "env SPLIT_K");
  EXPECT_EQ(r->unmatched[1].gate, "");
}

TEST(RankedSwitches, ThePlanShowsThePriorsAndWhereTheyComeFrom) {
  Deployment d = four_switches();
  const auto without = describe_plan(d, {});
  ASSERT_TRUE(without);
  EXPECT_EQ(without->find("prior of each"), std::string::npos);
  d.given.ranks = ranked(d, {suspect("moe.py", 0.6, env("MOE_FUSED")), suspect("attn.py", 0.2, flag("split-k")),
                             suspect("c.py", 0.2, nullptr)});
  const auto plan = describe_plan(d, {});
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->find("0.500  s0"), std::string::npos) << *plan;  // 1/8 + 1/2 · 0.6/0.8
  EXPECT_NE(plan->find("0.125  s3"), std::string::npos) << *plan;
  EXPECT_NE(plan->find("env MOE_FUSED: moe.py:@@ 7 f (0.600)"), std::string::npos) << *plan;
  EXPECT_NE(plan->find("suspects that no switch turns: 1"), std::string::npos) << *plan;
  const auto json = plan_json(d, {});
  ASSERT_TRUE(json);
  const Json j = Json::parse(*json)["plan"];
  EXPECT_DOUBLE_EQ(j["priors"][0]["prior"].get<double>(), 0.5);
  EXPECT_EQ(j["priors"][0]["from"][0]["gate"], "env MOE_FUSED");
  EXPECT_EQ(j["suspects_without_switch"].size(), 1u);
}

TEST(RankedSwitches, ARankingThatNamesNoSwitchIsFlat) {
  Deployment d = four_switches();
  d.given.ranks = ranked(d, Json::array({suspect("c.py", 1, nullptr)}));
  EXPECT_TRUE(d.given.ranks->weights({0, 1, 2, 3}).empty());
  EXPECT_NE(describe_priors(d).find("flat"), std::string::npos);
}

TEST(RankedSwitches, OtherDocumentsAreRefused) {
  for (const char* text : {"", "[]", "{}", R"({"suspects": [{}]})", R"({"suspects": [{"prior": 2}]})"})
    EXPECT_FALSE(rank_switches(text, "rank.json", four_switches())) << text;
}

// A ranking that is right saves launches, one that is wrong costs some; neither changes the verdict, which holds under
// the flat prior.
TEST(RankedSwitches, AWrongRankingNeverChangesTheVerdict) {
  int launches[3] = {0, 0, 0};
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (int kind = 0; kind < 3; ++kind) {
      Deployment d = testing::switches_all_on(12);
      for (std::size_t i = 0; i < d.switches.size(); ++i) d.switches[i].on.env["S" + std::to_string(i)] = "1";
      const std::size_t guilty = seed % 12;
      const std::size_t blamed = kind == 1 ? guilty : (guilty + 5) % 12;
      if (kind > 0) d.given.ranks = ranked(d, Json::array({suspect("x.py", 1, env("S" + std::to_string(blamed)))}));
      testing::SimulatedWorld world{.faults = {{.literals = {{guilty, true}}}}, .seed = seed};
      const auto played = testing::play(testing::plan_of(d, seed), world);
      const Verdict& v = played.findings.verdict;
      EXPECT_EQ(v.verdict, "confirmed") << seed << " " << kind;
      ASSERT_EQ(v.culprits.size(), 1u);
      EXPECT_EQ(v.culprits[0].switch_name, "s" + std::to_string(guilty));
      EXPECT_GE(v.posterior_flat_prior.value(), 0.95);
      launches[kind] += v.search_launches;
    }
  EXPECT_LT(launches[1], launches[0]);
  std::printf("search launches of 20 cases: flat %d, right ranking %d, wrong ranking %d\n", launches[0], launches[1],
              launches[2]);
}

}  // namespace
}  // namespace plumb::investigator
