#include "investigator/investigate.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/durable_file.h"
#include "investigator/probe_run.h"
#include "investigator/prompt_reader.h"
#include "investigator/report.h"
#include "investigator/simulated_worlds.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

// A server that reads prompts and remembers, unless a switch makes it forget what lies across the page boundary.
class ReadingWorld : public World {
 public:
  std::optional<std::size_t> culprit;
  int lives = 1'000'000;  // requests until the plug is pulled
  int launches = 0;
  int turns = 0;
  bool hangs = false;  // no request is answered before its time-out
  std::set<Variant> infeasible;
  std::optional<LaunchFailure> failure;
  int infeasible_after = 1'000'000;

  tl::expected<double, LaunchFailure> launch(const Variant& variant, std::int64_t) override {
    EXPECT_FALSE(running_) << "two launches at once";
    ++launches;
    if (failure) return tl::unexpected(*failure);
    if (launches > infeasible_after || infeasible.contains(variant))
      return tl::unexpected(LaunchFailure{LaunchFailure::Kind::infeasible, "assertion failed"});
    variant_ = variant;
    running_ = true;
    return 0.3;
  }
  void turn(const Variant& variant) override {
    EXPECT_TRUE(running_);
    ++turns;
    variant_ = variant;
  }
  Reply ask(const Ask& ask, double timeout_s) override {
    if (hangs) {
      now_ += timeout_s;
      return {};
    }
    EXPECT_TRUE(running_);
    if (--lives < 0) throw std::runtime_error("killed");
    Reply r;
    r.status = 200;
    now_ += 0.01;
    r.seconds = 0.01;
    r.kind = Reply::Kind::answered;
    r.finish_reason = "stop";
    if (!ask.messages.empty()) {
      r.text = "what";
      return r;
    }
    r.prompt_tokens = v4_tokens(ask.prompt);
    r.cached_tokens = ask.wants_hit ? 128 : 0;
    const std::string answer = testing::answer_from(ask.prompt);
    r.text = answer.empty() ? " the old mill and the quiet river were near the small town today" : answer;
    const bool broken = culprit && variant_[*culprit];
    if (broken && !answer.empty() && *r.prompt_tokens > 200) r.text = "A1" + answer.substr(2);
    return r;
  }
  bool alive(std::string&) override { return running_; }
  Result<void> stop() override {
    running_ = false;
    return {};
  }
  double now_s() override { return now_; }
  void unplug() { running_ = false; }

 private:
  Variant variant_;
  bool running_ = false;
  double now_ = 0;
};

class InvestigateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("case-{}-{}", ::getpid(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    plan_ = testing::plan_of(testing::switches_all_on(4), 11);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Journal new_journal(const std::string& name) {
    return std::move(Journal::create(folder_ / name, {plan_.seed, "hash", plan_.cells}).value());
  }

  std::filesystem::path folder_;
  Plan plan_;
};

TEST_F(InvestigateTest, FindsTheSwitchThatForgets) {
  ReadingWorld world;
  world.culprit = 2;
  Journal journal = new_journal("a");
  int right = 0;
  const auto outcome =
      run_investigation(plan_, world, journal, [&](const Progress& p) { right += p.right > 0 ? 1 : 0; });
  ASSERT_TRUE(outcome) << outcome.error().message;
  const Verdict& v = outcome->findings.verdict;
  EXPECT_EQ(v.verdict, "confirmed");
  ASSERT_EQ(v.culprits.size(), 1u);
  EXPECT_EQ(v.culprits[0], (Culprit{"s2", "on", {}, "damage"}));
  EXPECT_TRUE(outcome->findings.floor.identical());
  EXPECT_GT(right, 0);
  // The whole run within the demo's time: 1,500 prompt tokens a second.
  EXPECT_LE(outcome->history.tokens(), 250'000);
}

TEST_F(InvestigateTest, ACleanServerIsClean) {
  ReadingWorld world;
  Journal journal = new_journal("a");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->findings.verdict.verdict, "clean");
  EXPECT_EQ(outcome->findings.verdict.launch_failure_rate_95.has_value(), true);
}

TEST_F(InvestigateTest, AKillAtAnyRequestLosesOnlyTheTrialInFlight) {
  ReadingWorld whole_world;
  whole_world.culprit = 1;
  Journal whole_journal = new_journal("whole");
  const auto whole = run_investigation(plan_, whole_world, whole_journal, {});
  ASSERT_TRUE(whole);
  for (int lives = 1; lives < 700; lives += 83) {
    ReadingWorld world;
    world.culprit = 1;
    world.lives = lives;
    const auto file = folder_ / fmt::format("kill-{}", lives);
    bool killed = false;
    {
      auto journal = Journal::create(file, {plan_.seed, "hash", plan_.cells});
      try {
        (void)run_investigation(plan_, world, *journal, {});
      } catch (const std::runtime_error&) {
        killed = true;
      }
    }
    world.lives = 1'000'000;
    world.unplug();
    auto journal = Journal::open(file);
    ASSERT_TRUE(journal) << journal.error().message;
    const auto before = journal->read();
    const auto again = run_investigation(plan_, world, *journal, {});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(verdict_json(again->findings.verdict).find("confirmed") != std::string::npos, true);
    EXPECT_EQ(again->findings.verdict.culprits, whole->findings.verdict.culprits);
    EXPECT_EQ(again->findings.verdict.trials, whole->findings.verdict.trials);
    EXPECT_EQ(again->history.launches.size(), whole->history.launches.size());
    // Nothing that was in the journal was asked again.
    ASSERT_TRUE(before);
    for (std::size_t i = 0; i < before->launches.size(); ++i)
      for (std::size_t k = 0; k < before->launches[i].trials.size(); ++k)
        EXPECT_EQ(before->launches[i].trials[k].at_s, again->history.launches[i].trials[k].at_s);
    EXPECT_EQ(again->history.starts(), whole->history.starts() + (killed ? 1 : 0)) << lives;
  }
}

TEST_F(InvestigateTest, InfeasibleLaunchesEndInAMessageNotAVerdict) {
  ReadingWorld world;
  world.infeasible_after = 1;
  Journal journal = new_journal("a");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->findings.verdict.verdict, "inconclusive");
  EXPECT_NE(outcome->findings.reasons.back().find("assertion failed"), std::string::npos);
}

TEST_F(InvestigateTest, WhatNeverLaunchesOrAnswersIsAnErrorNotAVerdict) {
  ReadingWorld world;
  world.infeasible_after = 0;
  Journal journal = new_journal("a");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("assertion failed"), std::string::npos) << outcome.error().message;
  EXPECT_NE(outcome.error().message.find("no variant launches"), std::string::npos) << outcome.error().message;
  EXPECT_EQ(world.launches, 2) << "reference and as deployed";

  ReadingWorld silent;
  silent.hangs = true;
  plan_.limits.max_minutes = 10'000;
  Journal other = new_journal("b");
  const auto unanswered = run_investigation(plan_, silent, other, {});
  ASSERT_FALSE(unanswered);
  EXPECT_NE(unanswered.error().message.find("answers no request"), std::string::npos) << unanswered.error().message;
}

TEST_F(InvestigateTest, AReferenceThatDoesNotLaunchIsReplacedByOneThatDoes) {
  ReadingWorld world;
  world.infeasible = {reference_variant(plan_.deployment)};
  Journal journal = new_journal("a");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->findings.verdict.verdict, "clean");
  ASSERT_EQ(outcome->findings.unswitchable.size(), 1u);
  EXPECT_FALSE(outcome->findings.unswitchable[0].alone);
  EXPECT_NE(outcome->findings.reference, reference_variant(plan_.deployment));
}

TEST_F(InvestigateTest, AStaleServerIsAnErrorAndTheLaunchIsTriedAgain) {
  ReadingWorld world;
  world.failure = LaunchFailure{LaunchFailure::Kind::stale, "somebody listens there"};
  Journal journal = new_journal("a");
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto outcome = run_investigation(plan_, world, journal, {});
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().message.find("somebody listens there"), std::string::npos);
    EXPECT_EQ(world.launches, attempt);
  }
  world.failure.reset();
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->findings.verdict.verdict, "clean");
}

TEST_F(InvestigateTest, AHangingServerDoesNotOutlastTheBudget) {
  ReadingWorld world;
  world.hangs = true;
  plan_.limits.max_minutes = 0.5;
  Journal journal = new_journal("a");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_LE(world.now_s(), 30 + 2 * kLeastAskTimeoutS);
}

TEST_F(InvestigateTest, AJournalOfOtherLaunchesAndQuestionsIsDamaged) {
  ReadingWorld world;
  world.culprit = 2;
  Journal journal = new_journal("whole");
  ASSERT_TRUE(run_investigation(plan_, world, journal, {}));
  const auto damaged = [&](const char* sql) {
    const auto file = folder_ / "damaged";
    std::filesystem::remove(file);
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open((folder_ / "whole").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, fmt::format("VACUUM INTO '{}'", file.string()).c_str(), nullptr, nullptr, nullptr),
              SQLITE_OK);
    sqlite3_close(db);
    EXPECT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    EXPECT_GT(sqlite3_changes(db), 0) << sql;
    sqlite3_close(db);
    ReadingWorld again;
    auto read = Journal::open(file);
    if (!read) return read.error().message;
    const auto outcome = run_investigation(plan_, again, *read, {});
    EXPECT_EQ(again.launches, 0) << sql;
    return outcome ? std::string("read") : outcome.error().message;
  };
  for (const char* sql :
       {"UPDATE launches SET variant = '1100' WHERE id = 1", "UPDATE launches SET variant = variant || '0'",
        "UPDATE launches SET label = 'ground/deployed/9' WHERE id = 2",
        "UPDATE launches SET status = 'open' WHERE id = 1; DELETE FROM trials WHERE id = 12",
        "DELETE FROM trials WHERE id = 12", "UPDATE trials SET seed = '1' WHERE id = 3",
        "UPDATE trials SET steps = replace(steps, '\"expected\":\"', '\"expected\":\"X') WHERE id = 5",
        "UPDATE launches SET variant = '11x1' WHERE id = 1"})
    EXPECT_NE(damaged(sql).find("the journal is damaged: launch "), std::string::npos) << sql << ": " << damaged(sql);
}

TEST_F(InvestigateTest, ACaseWithoutATrialIsBegunAnewWithACorrectedFile) {
  Deployment bad = plan_.deployment;
  bad.processes[0].command = {"/nonexistent/server"};
  InvestigateOptions options{
      .case_dir = folder_ / "case", .deployment_toml = "", .seed = 5, .limits = {}, .progress = {}};
  options.resume = true;
  EXPECT_NE(investigate(bad, options).error().message.find("nothing to resume in"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options.case_dir));
  options.resume = false;
  EXPECT_NE(investigate(bad, options).error().message.find("/nonexistent/server"), std::string::npos);
  EXPECT_TRUE(has_journal(options.case_dir));
  for (const bool resume : {false, true}) {
    options.resume = resume;
    bad.processes[0].command = {fmt::format("/nonexistent/corrected-{}", resume)};
    const auto outcome = investigate(bad, options);
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().message.find(bad.processes[0].command[0]), std::string::npos) << outcome.error().message;
  }
}

TEST_F(InvestigateTest, ALaunchThatLacksWhatIsAroundItIsNotBlamed) {
  Deployment d = plan_.deployment;
  d.processes[0].command = {"/bin/false"};
  InvestigateOptions options{
      .case_dir = folder_ / "case", .deployment_toml = "", .seed = 5, .limits = {}, .progress = {}};
  options.surroundings = []() -> Result<void> { return error("the dealer has ended; start another"); };
  for (const bool resume : {false, true}) {
    options.resume = resume;
    const auto outcome = investigate(d, options);
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().message.find("the dealer has ended; start another"), std::string::npos)
        << outcome.error().message;
  }
  const auto journal = Journal::open(options.case_dir / "journal.sqlite");
  ASSERT_TRUE(journal);
  const auto history = journal->read();
  ASSERT_EQ(history->launches.size(), 1u);
  EXPECT_EQ(history->launches[0].status, LaunchRecord::Status::open);
  options.seed = 6;
  EXPECT_NE(investigate(d, options).error().message.find("begun with seed 5, not 6"), std::string::npos);
  options.seed.reset();
  // With its surroundings there, the launch is what fails.
  options.surroundings = []() -> Result<void> { return {}; };
  options.resume = true;
  EXPECT_NE(investigate(d, options).error().message.find("no variant launches"), std::string::npos);
}

TEST_F(InvestigateTest, TheHashOfADeploymentCoversWhatIsLaunchedAndHow) {
  std::set<std::string> hashes{hash_deployment(plan_.deployment)};
  const std::vector<std::function<void(Deployment&)>> changes{
      [](Deployment& d) { d.processes[0].cwd = "/tmp"; },
      [](Deployment& d) { d.processes[0].role = "prefill"; },
      [](Deployment& d) { d.processes[0].after = {"a"}; },
      [](Deployment& d) { d.processes[0].command = {"server", "a"}; },
      [](Deployment& d) { d.switches[0].processes = {"server"}; },
      [](Deployment& d) { d.switches[0].needs = {"s1"}; },
      [](Deployment& d) { d.switches[0].conflicts = {"s1"}; },
      [](Deployment& d) { d.switches[0].apply = "request"; },
      [](Deployment& d) { d.switches[0].on.args = {"s1"}; },
      [](Deployment& d) { d.switches[0].off.args = {"s1"}; },
      [](Deployment& d) { d.endpoints[0].model = "completions"; }};
  for (const auto& change : changes) {
    Deployment d = plan_.deployment;
    change(d);
    hashes.insert(hash_deployment(d));
  }
  EXPECT_EQ(hashes.size(), changes.size() + 1);
}

TEST_F(InvestigateTest, ThePlanIsOneJsonDocument) {
  const auto text = plan_json(plan_.deployment, {});
  ASSERT_TRUE(text) << text.error().message;
  const Json plan = Json::parse(*text).at("plan");
  EXPECT_EQ(plan.at("launches").at("search_if_something_fails"), 6);  // log2(4 / 0.5) = 3 bits
  EXPECT_EQ(plan.at("probes").size(), plan_.cells.size());
  EXPECT_EQ(plan.at("costs").at("switches").size(), 4u);
  for (const char* fact : {"window", "chunk", "page"}) {
    Deployment d = plan_.deployment;
    d.facts[fact] = 1 << 24;
    const auto refused = plan_json(d, {});
    ASSERT_FALSE(refused) << fact;
    EXPECT_NE(refused.error().message.find("[facts]"), std::string::npos);
  }
}

TEST(Report, ReplacesAbsolutePathsOnly) {
  EXPECT_EQ(without_paths("build/release/plumb"), "build/release/plumb");
  EXPECT_EQ(without_paths("./plumb ../a/b"), "./plumb ../a/b");
  EXPECT_EQ(without_paths("/home/me/server"), "<path>/server");
  EXPECT_EQ(without_paths("--model=/home/me/m --log '/var/me/x y' a/b"), "--model=<path>/m --log '<path>/x y' a/b");
  EXPECT_EQ(without_paths("http://127.0.0.1:8000/v1"), "http://127.0.0.1:8000/v1");
  EXPECT_EQ(without_paths("file:///home/me/a"), "file://<path>/a");
}

TEST(ProbeRun, RefusesBadUrlsAndSaysWhatAServerThatIsNotThereReplies) {
  for (const char* url :
       {"http://", "http://127.0.0.1:0", "http://127.0.0.1:99999", "http://a b", "ftp://x", "http://127.0.0.1:1/v1"}) {
    const auto report = run_probes({.urls = {url}, .deployment = {}, .log_folder = {}, .lengths = {}, .progress = {}});
    ASSERT_FALSE(report) << url;
    EXPECT_NE(report.error().message.find(url), std::string::npos);
  }
  const auto report =
      run_probes({.urls = {"http://127.0.0.1:1"}, .deployment = {}, .log_folder = {}, .lengths = {}, .progress = {}});
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("no probe was answered; the first reply: "), std::string::npos)
      << report.error().message;
}

TEST_F(InvestigateTest, ReportsSayWhatWasFound) {
  ReadingWorld world;
  world.culprit = 2;
  Journal journal = new_journal("a");
  auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome);
  const Case c{plan_, "", *outcome, true};
  const std::string report = report_markdown(make_report(c));
  EXPECT_LE(report.size(), kMaxReportBytes);
  for (const char* needed : {"confirmed", "`s2` on (damage)", "What would change our mind", "curl", "## Environment",
                             "Ruled out", "Open questions", "<details markdown", "### Relevant files", "| short | 0/"})
    EXPECT_NE(report.find(needed), std::string::npos) << needed;
  std::size_t lines = 0;
  for (std::size_t at = 0; at < report.find("## Environment"); ++at) lines += report[at] == '\n' ? 1u : 0u;
  EXPECT_LE(lines, 18u);
  EXPECT_TRUE(report.starts_with("# `s2` on breaks recall ")) << report.substr(0, 200);
  EXPECT_NE(report.find("expected `"), std::string::npos);
  EXPECT_EQ(report.find("Trial failure rate"), std::string::npos) << "not beside failures";
  EXPECT_EQ(report.find("up to 100 %"), std::string::npos);
  EXPECT_NE(report.find("`reproduce.sh`, `prompt-1.json`"), std::string::npos);
  const TrialAccount account = account_of(c);
  EXPECT_EQ(account.shown + account.repeated + account.other_variants + account.other_wording + account.weak +
                account.unanswered,
            outcome->findings.verdict.trials);
  EXPECT_GT(account.other_variants, 0);

  const Json j = Json::parse(verdict_json(outcome->findings.verdict));
  const auto ordered = nlohmann::ordered_json::parse(verdict_json(outcome->findings.verdict));
  std::vector<std::string> keys;
  for (const auto& [key, value] : ordered.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"verdict", "culprits", "class", "posterior", "posterior_flat_prior",
                                            "launches", "trials", "bounds", "not_covered"}));
  EXPECT_EQ(j["culprits"][0]["switch"], "s2");

  const Reproduction r = reproduction(c);
  ASSERT_FALSE(r.bodies.empty());
  EXPECT_EQ(testing::answer_from(Json::parse(r.bodies.back())["prompt"]), r.expected);
  EXPECT_NE(r.script.find(r.expected), std::string::npos);

  ASSERT_TRUE(write_reports(folder_, c));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "report.md"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "reproduce.sh"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "prompt-1.json"));

  // The script against a server whose curl says what the test wants.
  const auto run_script = [&](const std::string& curl, const std::string& arguments) {
    std::ofstream(folder_ / "curl") << "#!/bin/sh\n" << curl << "\n";
    std::filesystem::permissions(folder_ / "curl", std::filesystem::perms::owner_all);
    const int status =
        std::system(fmt::format("PATH='{}':$PATH '{}' {} >'{}' 2>&1", folder_.string(),
                                (folder_ / "reproduce.sh").string(), arguments, (folder_ / "out").string())
                        .c_str());
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(run_script("printf '%s\\n200' '" + r.expected + "'", "http://h:1"), 0);
  EXPECT_EQ(run_script("printf '%s\\n200' 'A1-11-AA'", "http://h:1/"), 1);
  EXPECT_EQ(run_script("printf '%s\\n404' 'no such model'", "http://h:1"), 3);
  EXPECT_NE(read_file(folder_ / "out")->find("HTTP 404): not a reproduction"), std::string::npos);
  EXPECT_EQ(run_script("printf '\\n000'; exit 7", "http://h:1"), 3);
  EXPECT_NE(read_file(folder_ / "out")->find("did not answer"), std::string::npos);
  EXPECT_EQ(run_script("exit 0", ""), 3);
}

TEST_F(InvestigateTest, ACleanReportNamesNoFilesThatAreNotThere) {
  ReadingWorld world;
  Journal journal = new_journal("a");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome);
  const std::string report = report_markdown(make_report({plan_, "", *outcome, true}));
  EXPECT_TRUE(report.starts_with("# No loss of recall found in simulated")) << report.substr(0, 200);
  EXPECT_EQ(report.find("reproduce.sh"), std::string::npos);
  EXPECT_NE(report.find("Nothing failed as deployed, all probes together"), std::string::npos);
}

TEST_F(InvestigateTest, AnUnfinishedCaseCountsWhatThereIsAndNamesItsCommand) {
  ReadingWorld world;
  world.lives = 60;
  Journal journal = new_journal("a");
  EXPECT_THROW((void)run_investigation(plan_, world, journal, {}), std::runtime_error);
  const auto history = journal.read();
  ASSERT_TRUE(history);
  Case c{plan_, "", {findings_so_far(plan_, *history), *history, plan_.seed}, false};
  c.go_on = go_on_command("my case", {}, {});
  const Verdict& v = c.outcome.findings.verdict;
  EXPECT_EQ(v.verdict, "inconclusive");
  EXPECT_GT(v.trials, 0);
  EXPECT_GT(v.floor_launches, 0);
  const std::string report = report_markdown(make_report(c));
  EXPECT_NE(report.find("`plumb isolate 'my case'`"), std::string::npos);
  // The same list in the report as in the JSON, and no probe with results is in it without a reason.
  for (const std::string& open : v.not_covered) {
    EXPECT_NE(report.find("- " + open + "\n"), std::string::npos) << open;
    if (open.find(':') != std::string::npos) continue;
    for (const Column& k : columns(c)) EXPECT_EQ(counts_in_report(c, k.variant, open).trials, 0) << open;
  }
}

TEST_F(InvestigateTest, ABudgetNamesTheCommandThatGoesOn) {
  ReadingWorld world;
  plan_.limits.max_restarts = 2;
  Journal journal = new_journal("a");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->findings.budget, "launches");
  EXPECT_EQ(go_on_command("c", outcome->findings, plan_.limits), "plumb isolate c --max-restarts 4");
  EXPECT_NE(summary(*outcome, "plumb isolate c").find("go on with: plumb isolate c\n"), std::string::npos);
}

TEST_F(InvestigateTest, EachQuestionOfTheSearchIsAnsweredYesOrNo) {
  ReadingWorld world;
  world.culprit = 2;
  Journal journal = new_journal("a");
  int questions = 0;
  ASSERT_TRUE(run_investigation(plan_, world, journal, [&](const Progress& p) {
    if (p.kind != Progress::Kind::launch_end || !p.text.starts_with("does turning ")) return;
    ++questions;
    // Whether s2 was turned decides alone: to the side that cures, or to the one that harms.
    EXPECT_EQ(p.answer, p.text.find("s2 ") != std::string::npos ? "yes" : "no") << p.text;
  }));
  EXPECT_GE(questions, 2);
}

TEST(Probes, TheDocumentedTableIsTheTable) {
  const auto page = read_file(std::filesystem::path(PLUMB_SOURCE_DIR) / "docs/probes.md");
  ASSERT_TRUE(page);
  for (const Probe& probe : probes()) {
    const std::string row = fmt::format("| `{}` | {} | {} |\n", probe.name, probe.asks, probe.sends);
    EXPECT_NE(page->find(row), std::string::npos) << row;
  }
}

TEST(Example, TheCommittedDeploymentFileIsOne) {
  const auto example = load_deployment(std::filesystem::path(PLUMB_SOURCE_DIR) / "docs/examples/phantom.toml");
  ASSERT_TRUE(example) << example.error().message;
  EXPECT_TRUE(plan_json(*example, {}));
  EXPECT_GE(example->switches.size(), 4u);
}

TEST(Environment, IsReadAsItIsWritten) {
  Environment e = environment_here();
  EXPECT_FALSE(e.cpu.empty() || e.os.empty() || e.plumb.empty() || e.date.empty());
  e.model = "a \"model\"";
  const auto read = parse_environment(environment_json(e));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, e);
  EXPECT_FALSE(parse_environment("{}"));
  EXPECT_FALSE(parse_environment("["));
}

TEST_F(InvestigateTest, TwoServersAreComparedPromptByPrompt) {
  ProbeOptions options;
  options.trials = 4;
  const auto cells = cells_of("needle", {}).value();
  ReadingWorld good;
  ReadingWorld bad;
  bad.culprit = 0;
  ASSERT_TRUE(good.launch({true}, 1));
  ASSERT_TRUE(bad.launch({true}, 1));
  const ProbeReport report{
      cells, {probe_world(good, "a", cells, options, {}), probe_world(bad, "b", cells, options, {})}, {}, {}};
  const auto compared = report.comparison();
  ASSERT_EQ(compared.size(), cells.size());
  for (const auto& row : compared) {
    EXPECT_EQ(row.prompts, 4);
    EXPECT_EQ(row.only_first_fails + row.both_fail, 0);
    EXPECT_EQ(row.only_second_fails, 4);
  }
  EXPECT_NE(report.table().find("B is worse"), std::string::npos) << report.table();
  EXPECT_NE(report.table().find("expected \""), std::string::npos);
  EXPECT_EQ(Json::parse(report.json())["targets"][1]["probes"][0]["first_failures"].size(), kShownFailures);
}

TEST_F(InvestigateTest, ProbesAloneTellRightFromWrong) {
  ProbeOptions options;
  options.trials = 4;
  const auto cells = cells_of("all", {}).value();
  for (const bool broken : {false, true}) {
    ReadingWorld world;
    if (broken) world.culprit = 0;
    ASSERT_TRUE(world.launch({true}, 1));
    ProbeReport report{cells, {probe_world(world, "server", cells, options, {})}, {}, {}};
    report.not_covered = not_covered_by(report.targets[0], cells);
    EXPECT_TRUE(report.not_covered.empty());
    EXPECT_EQ(report.exit_code(), broken ? 1 : 0);
    EXPECT_EQ(report.junit().find("<failure") != std::string::npos, broken);
    EXPECT_EQ(Json::parse(report.json())["failures"] > 0, broken);
  }
}

TEST(Case, RefusesBadFoldersAndFiles) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("bad-case-{}", ::getpid());
  std::filesystem::create_directories(folder);
  EXPECT_NE(report_case(folder, {}).error().message.find("is no case"), std::string::npos);
  EXPECT_FALSE(report_case(folder / "absent", {}));
  Deployment never = testing::switches_all_on(1);
  never.restart = "never";
  never.switches.clear();
  EXPECT_NE(investigate(never, {.case_dir = folder, .deployment_toml = "", .seed = 1, .limits = {}, .progress = {}})
                .error()
                .message.find("restart"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_F(InvestigateTest, RequestsTurnSwitchesInRunningProcesses) {
  ReadingWorld restarted;
  restarted.culprit = 2;
  Journal before = new_journal("restarts");
  const auto slow = run_investigation(plan_, restarted, before, {});
  plan_.deployment = testing::turned_by_requests(plan_.deployment);
  ReadingWorld world;
  world.culprit = 2;
  Journal journal = new_journal("requests");
  const auto outcome = run_investigation(plan_, world, journal, {});
  ASSERT_TRUE(slow && outcome);
  EXPECT_EQ(outcome->findings.verdict.verdict, "confirmed");
  EXPECT_EQ(outcome->findings.verdict.culprits, slow->findings.verdict.culprits);
  EXPECT_GT(world.turns, 0);
  EXPECT_EQ(world.turns, outcome->findings.verdict.turned);
  EXPECT_EQ(world.launches, outcome->history.starts());
  EXPECT_LT(world.launches, restarted.launches);
  EXPECT_EQ(outcome->findings.verdict.search_launches, 2) << "the passing and the failing variant once more";
  // The journal holds who shared whose processes, and is read as it was written.
  const auto read = journal.read();
  ASSERT_TRUE(read) << read.error().message;
  for (std::size_t i = 0; i < read->launches.size(); ++i)
    EXPECT_EQ(read->launches[i].host, outcome->history.launches[i].host);
}

TEST_F(InvestigateTest, AKillWhileProcessesAreSharedGoesOnInNewOnes) {
  plan_.deployment = testing::turned_by_requests(plan_.deployment);
  for (int lives = 250; lives < 450; lives += 19) {
    ReadingWorld world;
    world.culprit = 1;
    world.lives = lives;
    const auto file = folder_ / fmt::format("kill-{}", lives);
    {
      auto journal = Journal::create(file, {plan_.seed, "hash", plan_.cells});
      try {
        (void)run_investigation(plan_, world, *journal, {});
      } catch (const std::runtime_error&) {
      }
    }
    world.lives = 1'000'000;
    world.unplug();
    auto journal = Journal::open(file);
    ASSERT_TRUE(journal) << journal.error().message;
    const auto again = run_investigation(plan_, world, *journal, {});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->findings.verdict.verdict, "confirmed") << lives;
    EXPECT_EQ(again->findings.verdict.culprits, (std::vector<Culprit>{{"s1", "on", {}, "damage"}})) << lives;
    EXPECT_EQ(world.launches, again->history.starts());
  }
}

}  // namespace
}  // namespace plumb::investigator
