#include "investigator/demo.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/stat.h>

#include "base/durable_file.h"
#include "base/sha256.h"
#include "investigator/deployment.h"

namespace plumb::investigator {
namespace {

constexpr const char* kCleanVerdict = R"({"verdict": "clean", "culprits": []})";
constexpr const char* kConfirmedVerdict =
    R"({"verdict": "confirmed", "culprits": [{"switch": "prefix_cache", "side": "on"}]})";

// A stand-in for plumb-faulty: seals a fixed plant, announces it and waits for the end of its input. Its probe seed is
// the seed it gets; it writes its process id beside the envelope.
constexpr const char* kFakeDealer = R"(#!/bin/sh
set -e
while [ $# -gt 0 ]; do
  case $1 in --envelope) envelope=$2; shift;; --stratum) stratum=$2; shift;; --resume) resume=1;; --commitment) want=$2; shift;; esac
  shift
done
read seed
if [ -z "$resume" ] || [ ! -e "$envelope" ]; then
  plants='{"kind":"cmp-state-not-cached","form":"f","host":"prefix_cache","severity":1,"layers":"all","dose_seed":1}'
  if [ "$stratum" = clean ]; then plants=; fi
  echo "{\"stratum\":\"$stratum\",\"plants\":[$plants],\"rate\":1,\"masked_by\":\"\",\"seed\":$seed,\"nonce\":\"n\"}" >"$envelope"
  echo "$seed" >"$envelope.seed"
fi
hash=$(sha256sum <"$envelope" | cut -c1-64)
if [ -n "$want" ] && [ "$want" != "$hash" ]; then exit 3; fi
echo $$ >"$envelope.pid"
echo "{\"commitment\":\"$hash\",\"probe_seed\":$(cat "$envelope.seed"),\"socket\":\"/nowhere\",\"deployed_off\":[]}"
cat >/dev/null
)";

class Demo : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "plumb demo test-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    options.model = folder / "phantom";
    options.executable = folder / "dealer";
    options.case_dir = folder / "case";
    options.switches = {{.name = "prefix_cache", .shift = 0}, {.name = "attention.split_k"}};
    options.seed = 12;
    std::ofstream(options.executable) << kFakeDealer;
    ::chmod(options.executable.c_str(), 0700);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  int dealer_pid() const {
    std::ifstream file(envelope_of(options.case_dir).string() + ".pid");
    int pid = 0;
    file >> pid;
    return pid;
  }
  bool dealer_runs() const { return dealer_pid() > 0 && ::kill(dealer_pid(), 0) == 0; }

  std::filesystem::path folder;
  DemoOptions options;
};

TEST_F(Demo, CommitsBeforeItInvestigatesAndOpensTheEnvelopeAfterTheVerdict) {
  std::vector<std::string> said;
  options.say = [&](const std::string& line) { said.push_back(line); };
  const auto result = run_demo(options, [&](const DemoCase& blind) -> Result<std::string> {
    const std::string commitment = sha256_hex(*read_file(envelope_of(options.case_dir)));
    EXPECT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find(commitment), std::string::npos);
    EXPECT_NE(read_file(options.case_dir / "demo.json")->find(commitment), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(options.case_dir / "verdict.json"));
    EXPECT_EQ(blind.probe_seed, 12u);
    EXPECT_FALSE(blind.resume);
    EXPECT_TRUE(dealer_runs());
    return kConfirmedVerdict;
  });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->match);
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_EQ(result->planted.faults.at(0).host, "prefix_cache");
  const auto json = nlohmann::json::parse(result->json);
  EXPECT_EQ(json.at("planted").at("switch"), "prefix_cache");
  EXPECT_EQ(json.at("match"), true);
  EXPECT_GE(json.at("seconds"), 0);
  EXPECT_FALSE(dealer_runs());
}

TEST_F(Demo, TheEnvelopeLiesBesideTheCaseHoweverItsFolderIsWritten) {
  for (const char* name : {"/w/c", "/w/c/", "/w/c//", "/w/./c/.", "/w/a/../c/", "/w/c/d/..", "/w//c/./"})
    EXPECT_EQ(envelope_of(name), "/w/c.envelope.json") << name;
  EXPECT_EQ(envelope_of("c/"), "c.envelope.json");
  const auto investigate = [](const DemoCase&) -> Result<std::string> { return error("stopped"); };
  options.case_dir = folder / "case/";
  ASSERT_FALSE(run_demo(options, investigate));
  EXPECT_TRUE(std::filesystem::exists(folder / "case.envelope.json"));
  options.case_dir = folder / "case";
  options.resume = true;
  EXPECT_TRUE(run_demo(options, [](const DemoCase&) -> Result<std::string> { return kConfirmedVerdict; }));
}

TEST_F(Demo, RefusesAnEnvelopeThatChangedMeanwhile) {
  const auto result = run_demo(options, [&](const DemoCase&) -> Result<std::string> {
    std::ofstream(envelope_of(options.case_dir), std::ios::app) << " ";
    return kConfirmedVerdict;
  });
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("was changed"), std::string::npos);
}

TEST_F(Demo, NeverOverwritesACase) {
  const auto investigate = [](const DemoCase&) -> Result<std::string> { return kConfirmedVerdict; };
  ASSERT_TRUE(run_demo(options, investigate));
  const auto again = run_demo(options, investigate);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("--resume"), std::string::npos);
}

TEST_F(Demo, ResumesTheSameDealUntilThereIsAVerdict) {
  ASSERT_FALSE(run_demo(options, [](const DemoCase&) -> Result<std::string> { return error("stopped"); }));
  const std::string envelope = *read_file(envelope_of(options.case_dir));
  const std::string promise = *read_file(options.case_dir / "demo.json");
  const std::string deployment = *read_file(options.case_dir / "deployment.toml");
  EXPECT_FALSE(dealer_runs());

  options.resume = true;
  options.seed.reset();
  int investigations = 0;
  const auto investigate = [&](const DemoCase& blind) -> Result<std::string> {
    ++investigations;
    EXPECT_TRUE(blind.resume);
    EXPECT_EQ(blind.probe_seed, 12u);
    EXPECT_EQ(*read_file(blind.deployment), deployment);
    return kConfirmedVerdict;
  };
  const auto first = run_demo(options, investigate);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->resumed);
  const std::string record = *read_file(options.case_dir / "result.json");
  const auto again = run_demo(options, investigate);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(investigations, 1);
  EXPECT_EQ(*read_file(options.case_dir / "result.json"), record) << "the record of a finished demo stays";
  EXPECT_EQ(again->seconds, first->seconds);
  EXPECT_EQ(again->json, first->json);
  EXPECT_EQ(again->commitment, sha256_hex(envelope));
  options.seed = 13;
  EXPECT_NE(run_demo(options, investigate).error().message.find("seed 12, not 13"), std::string::npos);
  EXPECT_EQ(*read_file(envelope_of(options.case_dir)), envelope);
  EXPECT_EQ(*read_file(options.case_dir / "demo.json"), promise);
}

TEST_F(Demo, ADealerThatDiesLeavesNoVerdictAndAnotherGoesOn) {
  const auto killed = run_demo(options, [&](const DemoCase& blind) -> Result<std::string> {
    EXPECT_TRUE(blind.surroundings());
    EXPECT_EQ(::kill(dealer_pid(), SIGKILL), 0);
    const auto around = blind.surroundings();
    EXPECT_FALSE(around);
    EXPECT_NE(around.error().message.find("killed by signal 9"), std::string::npos) << around.error().message;
    EXPECT_NE(around.error().message.find("--resume"), std::string::npos) << around.error().message;
    return R"({"verdict": "inconclusive", "culprits": []})";
  });
  ASSERT_FALSE(killed);
  EXPECT_NE(killed.error().message.find("--resume"), std::string::npos) << killed.error().message;
  EXPECT_FALSE(std::filesystem::exists(options.case_dir / "verdict.json"));
  options.resume = true;
  const auto result = run_demo(options, [](const DemoCase& blind) -> Result<std::string> {
    EXPECT_TRUE(blind.surroundings());
    return kConfirmedVerdict;
  });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->match);
}

TEST_F(Demo, ResumesACaseThatStoppedBeforeItsPromise) {
  options.resume = true;
  const auto result = run_demo(options, [](const DemoCase&) -> Result<std::string> { return kConfirmedVerdict; });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->match);
}

TEST_F(Demo, ResumingNothingNeedsASeedAndSaysSo) {
  const auto investigate = [](const DemoCase&) -> Result<std::string> { return kConfirmedVerdict; };
  std::vector<std::string> warned;
  options.warn = [&](const std::string& line) { warned.push_back(line); };
  options.resume = true;
  options.seed.reset();
  const auto refused = run_demo(options, investigate);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("nothing to resume in"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options.case_dir));
  options.seed = 12;
  ASSERT_TRUE(run_demo(options, investigate));
  ASSERT_EQ(warned.size(), 1u);
  EXPECT_NE(warned[0].find("nothing to resume"), std::string::npos);
}

TEST_F(Demo, CreatesNothingWhenItsOptionsAreWrong) {
  const auto investigate = [](const DemoCase&) -> Result<std::string> { return kConfirmedVerdict; };
  const auto dealer = options.executable;
  options.executable = folder / "missing";
  EXPECT_FALSE(run_demo(options, investigate));
  options.executable = dealer;
  std::ofstream(envelope_of(options.case_dir)) << "of another case";
  EXPECT_FALSE(run_demo(options, investigate));
  EXPECT_FALSE(std::filesystem::exists(options.case_dir));
}

TEST_F(Demo, SaysWhatIsWrongWithTheDealer) {
  const auto investigate = [](const DemoCase&) -> Result<std::string> { return kConfirmedVerdict; };
  options.executable = folder / "missing";
  EXPECT_FALSE(run_demo(options, investigate));
  options.resume = true;
  options.executable = "/bin/false";
  EXPECT_FALSE(run_demo(options, investigate));
}

TEST_F(Demo, DeploymentNamesEverySwitchAndNothingOfThePlant) {
  const std::string text = demo_deployment(options, "/tmp/a\"b");
  EXPECT_NE(text.find(R"(PLUMB_DEALER = "/tmp/a\"b")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(on = { args = ["--set", "attention.split_k=on"] })"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("--port", "{port:server}", "--backend", "cpu"])"), std::string::npos) << text;
}

TEST_F(Demo, DeploymentTurnsOffWhatTheDealerAsksForAndCanHideNames) {
  options.anonymous = true;
  const std::string text = demo_deployment(options, "/s", {"attention.split_k"});
  EXPECT_NE(text.find("name = \"s01\""), std::string::npos) << text;
  EXPECT_EQ(text.find("name = \"prefix_cache\""), std::string::npos) << text;
  const auto second = text.find("name = \"s02\"");
  ASSERT_NE(second, std::string::npos);
  EXPECT_NE(text.find("deployed = \"off\"", second), std::string::npos) << text;
  EXPECT_NE(text.find("deployed = \"on\""), std::string::npos) << text;
}

TEST_F(Demo, WhatRequestsCanTurnIsTurnedByThem) {
  options.switches = {{.name = "prefix_cache", .by_request = true}, {.name = "kv.fp8", .deployed_on = false}};
  const auto deployment = parse_deployment(demo_deployment(options, "socket"), "demo.toml");
  ASSERT_TRUE(deployment) << deployment.error().message;
  EXPECT_EQ(deployment->switches[0].apply, "request");
  EXPECT_EQ(deployment->switches[0].off.body, R"({"plumb":{"switches":{"prefix_cache":"off"}}})");
  EXPECT_TRUE(deployment->switches[0].off.args.empty());
  EXPECT_EQ(deployment->switches[1].apply, "restart");
  EXPECT_EQ(deployment->switches[1].on.args, (std::vector<std::string>{"--set", "kv.fp8=on"}));
}

TEST(CompareWithPlanted, GivesTheExitCodesOfTheDemo) {
  const Planted none{.stratum = "clean"};
  const Planted cache{.stratum = "one", .faults = {{.kind = "cmp-state-not-cached", .host = "prefix_cache"}}};
  const auto of = [](const char* verdict, const Planted& planted) { return *compare_with_planted(verdict, planted); };
  EXPECT_EQ(of(kCleanVerdict, none).exit_code, 0);
  EXPECT_EQ(of(kConfirmedVerdict, cache).exit_code, 1);
  EXPECT_EQ(of(kConfirmedVerdict, none).exit_code, 3);
  EXPECT_EQ(of(kCleanVerdict, cache).exit_code, 3);
  EXPECT_EQ(of(kConfirmedVerdict, Planted{.stratum = "one", .faults = {{.kind = "x", .host = "attention.split_k"}}})
                .exit_code,
            3);
  EXPECT_EQ(of(R"({"verdict": "confirmed", "culprits": [{"switch": "prefix_cache", "side": "off"}]})", cache).exit_code,
            3);
  EXPECT_EQ(of(R"({"verdict": "confirmed", "culprits": [{"switch": "prefix_cache", "side": "on"},
                                                       {"switch": "attention.split_k", "side": "on"}]})",
               cache)
                .exit_code,
            3);
  EXPECT_EQ(of(R"({"verdict": "inconclusive", "culprits": []})", cache).exit_code, 2);
  EXPECT_FALSE(compare_with_planted("{}", none));
}

std::string verdict_of(const char* word, std::initializer_list<std::pair<const char*, const char*>> culprits) {
  nlohmann::json json{{"verdict", word}, {"culprits", nlohmann::json::array()}};
  for (const auto& [name, side] : culprits) json["culprits"].push_back({{"switch", name}, {"side", side}});
  return json.dump();
}

TEST(CompareWithPlanted, EveryStratumHasItsOwnRightAnswer) {
  const auto right = [](const std::string& verdict, const Planted& planted,
                        const std::map<std::string, std::string>& names = {}) {
    return compare_with_planted(verdict, planted, names)->match;
  };
  const Planted two{.stratum = "two", .faults = {{.kind = "x", .host = "a"}, {.kind = "y", .host = "b"}}};
  EXPECT_TRUE(right(verdict_of("confirmed", {{"b", "on"}, {"a", "on"}}), two));
  EXPECT_FALSE(right(verdict_of("confirmed", {{"a", "on"}}), two));
  EXPECT_FALSE(right(verdict_of("confirmed", {{"a", "on"}, {"b", "on"}, {"c", "on"}}), two));
  const Planted off{.stratum = "off-side", .faults = {{.kind = "x", .host = "a"}}};
  EXPECT_TRUE(right(verdict_of("confirmed", {{"a", "off"}}), off));
  EXPECT_FALSE(right(verdict_of("confirmed", {{"a", "on"}}), off));
  const Planted masked{.stratum = "masked", .faults = {{.kind = "x", .host = "a"}}, .masked_by = "b"};
  EXPECT_TRUE(right(verdict_of("confirmed", {{"a", "on"}}), masked));
  EXPECT_TRUE(right(verdict_of("suspected", {{"a", "on"}, {"b", "off"}}), masked));
  EXPECT_FALSE(right(verdict_of("confirmed", {{"b", "off"}}), masked));
  EXPECT_FALSE(right(verdict_of("confirmed", {{"a", "on"}, {"b", "on"}}), masked));
  const Planted step{.stratum = "no-switch", .faults = {{.kind = "x", .host = "none"}}};
  EXPECT_TRUE(right(verdict_of("unexplained", {}), step));
  EXPECT_FALSE(right(verdict_of("confirmed", {{"a", "on"}}), step));
  EXPECT_FALSE(right(verdict_of("clean", {}), step));
  EXPECT_TRUE(
      right(verdict_of("confirmed", {{"s01", "on"}}), {.stratum = "one", .faults = {{.host = "a"}}}, {{"a", "s01"}}));
}

}  // namespace
}  // namespace plumb::investigator
