#include "investigator/report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "investigator/markup.h"
#include "investigator/report_svg.h"
#include "investigator/simulated_worlds.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;
namespace pt = boost::property_tree;

constexpr const char* kHostile =
    "A1-11-AA</td></table></title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;<!-- ]]> \xff\x00\x07 "
    "|`";

Case played_case(std::vector<testing::SimulatedFault> faults) {
  Case c;
  c.plan = testing::plan_of(testing::switches_all_on(4), 11);
  testing::SimulatedWorld world{.faults = std::move(faults)};
  testing::Played played = testing::play(c.plan, world);
  c.outcome = {std::move(played.findings), std::move(played.history), c.plan.seed};
  c.ended = true;
  return c;
}

Case guilty_case() { return played_case({{.literals = {{2, true}}}}); }

// Everything that comes from outside says the worst it can.
Case hostile_case() {
  const std::string hostile(kHostile, std::char_traits<char>::length(kHostile));
  Case c = guilty_case();
  c.plan.deployment.name = hostile;
  for (SwitchSpec& s : c.plan.deployment.switches) s.name += hostile;
  for (LaunchRecord& l : c.outcome.history.launches) {
    l.message = hostile;
    for (TrialRecord& t : l.trials)
      for (StepRecord& s : t.steps)
        if (is_failure(s.grade)) s.text = s.detail = hostile;
  }
  Findings& f = c.outcome.findings;
  for (auto* list : {&f.reasons, &f.open_questions, &f.verdict.not_covered}) list->push_back(hostile);
  for (Culprit& k : f.verdict.culprits) k.switch_name += hostile;
  for (std::string* field : {&c.environment.cpu, &c.environment.os, &c.environment.model_hash}) *field = hostile;
  c.environment.model = "\"><script>alert(3)</script>";  // read from JSON, so it is UTF-8
  for (Round& r : f.rounds) r.checks.push_back(hostile);
  return c;
}

// What is written between < and > of a page, with its attributes, in order; fails where elements do not nest.
std::vector<std::string> tags_of(const std::string& page) {
  static const std::set<std::string> kVoid{"meta", "link", "!DOCTYPE"};
  std::vector<std::string> tags;
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const std::size_t end = page.find('>', at);
    EXPECT_NE(end, std::string::npos);
    const std::string tag = page.substr(at + 1, end - at - 1);
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    const std::string name = tag.substr(0, tag.find_first_of(" /", tag.starts_with('/') ? 1 : 0));
    tags.push_back(tag);
    if (tag.starts_with('/')) {
      EXPECT_FALSE(open.empty()) << tag;
      if (open.empty()) break;
      EXPECT_EQ("/" + open.back(), name);
      open.pop_back();
    } else if (!tag.ends_with('/') && !kVoid.contains(name)) {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
  return tags;
}

std::size_t count(const std::vector<std::string>& tags, const std::string& begin) {
  return static_cast<std::size_t>(
      std::count_if(tags.begin(), tags.end(), [&](const std::string& tag) { return tag.starts_with(begin); }));
}

TEST(Report, JsonHasTheVerdictsKeysAndTheNumbersBehindThem) {
  const Case c = guilty_case();
  const Json j = Json::parse(report_json(c, make_report(c)));
  const Json verdict = Json::parse(verdict_json(c.outcome.findings.verdict));
  for (const auto& [key, value] : verdict.items()) EXPECT_EQ(j.at(key), value) << key;
  EXPECT_EQ(j.size(), verdict.size() + 1);
  const Json& report = j.at("report");
  EXPECT_EQ(report.at("probes").size(), c.plan.cells.size() * columns(c).size());
  int right = 0;
  for (const Json& launch : report.at("launch_log")) right += launch.at("trials").get<int>();
  EXPECT_EQ(right, j.at("trials"));
  const Json& switches = report.at("rounds").at(0).at("switches");
  EXPECT_EQ(switches.size(), 4u);
  EXPECT_EQ(std::count_if(switches.begin(), switches.end(), [](const Json& s) { return s.at("ruled_out") == true; }),
            3);
  EXPECT_EQ(report.at("reproduction").at("expected"), "K7-42-QX");
  // Recall by length counts the questions that the probes' table counts.
  int questions = 0;
  for (const Json& field : report.at("recall_by_length")) questions += field.at("questions").get<int>();
  EXPECT_EQ(questions, account_of(c).shown);
}

TEST(Report, WhatWasNotComputedIsNull) {
  Case c;
  c.plan = testing::plan_of(testing::switches_all_on(2), 11);
  c.outcome.findings = findings_so_far(c.plan, {});
  const Json j = Json::parse(report_json(c, make_report(c)));
  for (const char* key : {"posterior", "posterior_flat_prior"}) EXPECT_TRUE(j.at(key).is_null()) << key;
  EXPECT_TRUE(j.at("bounds").at("trial_failure_rate_95").is_null());
  const Json& report = j.at("report");
  for (const char* key : {"wording", "budget_reached", "reproduction"}) EXPECT_TRUE(report.at(key).is_null()) << key;
  EXPECT_EQ(report.at("finished"), false);
  EXPECT_TRUE(report.at("environment").at("model").is_null());
}

TEST(Report, JUnitCountsWhatItHoldsAndFailsTheCulprit) {
  for (const Case& c : {guilty_case(), played_case({}), hostile_case()}) {
    std::istringstream text(report_junit(c));
    pt::ptree document;
    ASSERT_NO_THROW(pt::read_xml(text, document)) << report_junit(c);
    const bool guilty = !c.outcome.findings.rounds.empty();
    int failing_switches = 0;
    std::set<std::string> names;
    for (const auto& [tag, suite] : document.get_child("testsuites")) {
      if (tag == "<xmlattr>") continue;
      ASSERT_EQ(tag, "testsuite");
      std::map<std::string, int> results;
      for (const auto& [element, test] : suite) {
        if (element == "<xmlattr>") continue;
        ASSERT_EQ(element, "testcase");
        ++results["tests"];
        for (const auto& [result, detail] : test) {
          if (result == "<xmlattr>") continue;
          ++results[result];
          EXPECT_FALSE(detail.get<std::string>("<xmlattr>.message").empty());
        }
        EXPECT_TRUE(
            names.insert(suite.get<std::string>("<xmlattr>.name") + test.get<std::string>("<xmlattr>.name")).second);
        EXPECT_FALSE(test.get<std::string>("<xmlattr>.classname").empty());
      }
      EXPECT_EQ(suite.get<int>("<xmlattr>.tests"), results["tests"]);
      EXPECT_EQ(suite.get<int>("<xmlattr>.failures"), results["failure"]);
      EXPECT_EQ(suite.get<int>("<xmlattr>.errors"), results["error"]);
      EXPECT_EQ(suite.get<int>("<xmlattr>.skipped"), results["skipped"]);
      const auto name = suite.get<std::string>("<xmlattr>.name");
      if (name == "switches") failing_switches = results["failure"];
      EXPECT_TRUE(name != "verdict" || results["failure"] == (guilty ? 1 : 0));
    }
    EXPECT_EQ(failing_switches, guilty ? 1 : 0);
  }
}

TEST(Report, AnUnfinishedCaseIsNoSuccessInJUnit) {
  Case c = played_case({});
  c.ended = false;
  EXPECT_NE(report_junit(c).find("<error message=\"the investigation is not finished\""), std::string::npos);
}

TEST(Report, HtmlOpensOfflineAndSaysTheVerdictFirst) {
  const Case c = guilty_case();
  const std::string page = report_html(make_report(c));
  const auto tags = tags_of(page);
  for (const char* loader : {" src=", " href=", "@import", "http-equiv=\"refresh"})
    EXPECT_EQ(page.find(loader), std::string::npos) << loader;
  for (std::size_t at = page.find("url("); at != std::string::npos; at = page.find("url(", at + 1))
    EXPECT_EQ(page.compare(at, 11, "url(#hatch)"), 0);
  EXPECT_EQ(count(tags, "script"), 0u);
  EXPECT_LT(page.find(">confirmed</p>"), page.find("<h1><code>s2</code> on breaks recall"));
  EXPECT_LT(page.find("<h1>"), page.find("Confirmed on "));
  EXPECT_LT(page.find("Confirmed on "), page.find("<svg"));
  EXPECT_EQ(count(tags, "svg"), columns(c).size() + 2) << "recall of each variant, suspicion, timeline";
  EXPECT_NE(page.find("One switch at a time"), std::string::npos);
  EXPECT_LE(page.size(), kMaxHtmlBytes);
}

TEST(Report, HtmlCanBeReadByEveryone) {
  const std::string page = report_html(make_report(guilty_case()));
  const auto tags = tags_of(page);
  EXPECT_EQ(count(tags, "html lang=\"en\""), 1u);
  EXPECT_NE(page.find("width=device-width"), std::string::npos);
  EXPECT_EQ(count(tags, "h1"), 1u);
  EXPECT_EQ(count(tags, "table"), count(tags, "caption"));
  EXPECT_EQ(count(tags, "th"), count(tags, "th scope=") + count(tags, "thead"));
  std::set<std::string> ids;
  for (const std::string& tag : tags) {
    const std::size_t at = tag.find(" id=\"");
    EXPECT_TRUE(at == std::string::npos || ids.insert(tag.substr(at, tag.find('"', at + 5) - at)).second) << tag;
    EXPECT_TRUE(!tag.starts_with("svg") || tag.find("role=\"img\" aria-labelledby=") != std::string::npos) << tag;
  }
  EXPECT_EQ(count(tags, "desc"), count(tags, "svg"));
}

double luminance(std::string_view colour) {
  double sum = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (std::size_t i = 0; i < 3; ++i) {
    const double v = std::stoi(std::string(colour.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    sum += weights[i] * (v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4));
  }
  return sum;
}

// The ratio of the Web Content Accessibility Guidelines: 4.5 for text, 3 for pictures.
double contrast(std::string_view a, std::string_view b) {
  const double x = luminance(a);
  const double y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST(Report, ColoursContrastInLightAndDark) {
  EXPECT_NEAR(contrast("#000000", "#ffffff"), 21, 1e-9);
  for (const Shade& shade : kShades) EXPECT_GE(contrast(shade.fill, shade.ink), 4.5) << shade.says;
  const auto colour = [](std::string_view name) {
    return *std::find_if(kColours.begin(), kColours.end(), [&](const Colour& c) { return c.name == name; });
  };
  for (const char* ground : {"bg", "panel"})
    for (const char* ink : {"fg", "muted", "good", "bad", "warn"}) {
      EXPECT_GE(contrast(colour(ground).light, colour(ink).light), 4.5) << ink;
      EXPECT_GE(contrast(colour(ground).dark, colour(ink).dark), 4.5) << ink;
    }
  for (const char* bar : {"pass", "fail", "muted"}) {
    EXPECT_GE(contrast(colour("bg").light, colour(bar).light), 3) << bar;
    EXPECT_GE(contrast(colour("bg").dark, colour(bar).dark), 3) << bar;
  }
}

TEST(Report, WhatServersSayIsNeverMarkup) {
  const Report plain = make_report(guilty_case());
  const Report hostile = make_report(hostile_case());
  const auto names = [](const std::string& page) {
    std::set<std::string> all;
    for (const std::string& tag : tags_of(page)) all.insert(tag.substr(0, tag.find(' ')));
    return all;
  };
  const std::string page = report_html(hostile);
  EXPECT_EQ(names(page), names(report_html(plain))) << "no element that the page does not have anyway";
  EXPECT_NE(page.find("&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_EQ(page.find('\x07'), std::string::npos);
  for (const std::string& tag : tags_of(page)) EXPECT_EQ(tag.find("onerror"), std::string::npos) << tag;
  const std::string markdown = report_markdown(hostile);
  EXPECT_EQ(markdown.find("\n<script"), std::string::npos);
  EXPECT_TRUE(Json::accept(report_json(hostile_case(), hostile)));
}

TEST(Report, IsBoundedHoweverLongTheCase) {
  Case c = hostile_case();
  std::vector<LaunchRecord>& launches = c.outcome.history.launches;
  for (std::size_t i = 0; launches.size() < 2000; ++i) {
    LaunchRecord l = launches[i];
    l.id = static_cast<std::int64_t>(launches.size()) + 1;
    l.label += std::string(1000, 'x');
    if (i % 3 == 0) l.variant[i % 4].flip();
    for (TrialRecord& t : l.trials)
      for (StepRecord& s : t.steps) s.text = std::string(20'000, '<');
    if (l.trials.size() > 4) l.trials.resize(4);
    launches.push_back(std::move(l));
  }
  const Report report = make_report(c);
  EXPECT_LE(report_html(report).size(), kMaxHtmlBytes);
  EXPECT_LE(report_markdown(report).size(), kMaxReportBytes);
}

TEST(Report, AVariantIsNamedByWhatIsTurned) {
  const Case c = guilty_case();
  const Variant& deployed = c.outcome.findings.deployed;
  EXPECT_EQ(variant_name(c, deployed), "as deployed");
  Variant turned = deployed;
  turned[1].flip();
  EXPECT_EQ(variant_name(c, turned), "as deployed, s1 off");
  Variant harmed = c.outcome.findings.reference;
  harmed[0].flip();
  EXPECT_EQ(variant_name(c, harmed), "reference, s0 on");
}

TEST(Report, SuspicionEndsAtThePosteriorOfTheVerdict) {
  const Case c = guilty_case();
  const PosteriorTrace trace = posterior_trace(c, c.outcome.findings.rounds.front());
  ASSERT_FALSE(trace.points.empty());
  EXPECT_EQ(trace.switches.front(), "s2");
  const double first = trace.points.front().probabilities.front();
  const double last = trace.points.back().probabilities.front();
  EXPECT_LT(first, 0.5) << "one launch cannot tell four switches apart";
  EXPECT_GT(last, 0.95);
  for (std::size_t i = 1; i < trace.switches.size(); ++i)
    EXPECT_LT(trace.points.back().probabilities[i], 0.1) << trace.switches[i];
  // Sets of switches count for each of their members: the sum may be above 1, no single one.
  for (const PosteriorTrace::Point& p : trace.points)
    for (const double probability : p.probabilities) EXPECT_LE(probability, 1 + 1e-9);
}

TEST(Report, TimelineBarsFollowEachOther) {
  const Case c = guilty_case();
  double end = 0;
  for (const LaunchEntry& e : launch_entries(c)) {
    EXPECT_GE(e.begin_s, end) << e.label;
    EXPECT_GE(e.end_s, e.begin_s) << e.label;
    end = e.end_s;
  }
}

TEST(Markup, EscapesAllBytes) {
  EXPECT_EQ(escape_markup("<a b=\"c\" d='e'>&"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
  EXPECT_EQ(escape_markup("\xff\x01ü\xEF\xBF\xBF\n"), "??ü?\n");
}

}  // namespace
}  // namespace plumb::investigator
