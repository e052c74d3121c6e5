#include "investigator/recorded_trials.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "investigator/bench_recorded.h"
#include "investigator/record_trials.h"

namespace plumb::investigator {
namespace {

constexpr int kQuestions = 6;

// What an engine would answer that recalls all, but loses `lost` of its `turns` on a plant's bad side.
RecordedAsk engine(const RecordedPlant& plant, std::size_t lost) {
  return [=](const std::string& cell, const RecordedSetting& setting) -> Result<std::string> {
    std::string marks(kQuestions, '.');
    const bool bad = plant.side == "step" || (plant.kind != "none" && setting.host_on == (plant.side == "on"));
    if (bad && cell == "turns") marks.replace(0, lost, lost, 'x');
    return marks;
  };
}

Recording recording() {
  Recording r{
      .model_hash = "abc", .seed = 3, .cells = {"short", "turns"}, .questions = kQuestions, .launches = 2, .rows = {}};
  const std::vector<std::pair<RecordedPlant, std::size_t>> plants{{{}, 0},
                                                                  {{"lost", "all", "a", "on"}, 6},
                                                                  {{"lost", "most", "b", "on"}, 5},
                                                                  {{"lost", "off", "c", "off"}, 6},
                                                                  {{"lost", "always", "", "step"}, 6},
                                                                  {{"harmless", "one", "d", "on"}, 0},
                                                                  {{"harmless", "two", "e", "on"}, 0}};
  for (const auto& [plant, lost] : plants)
    for (int number = 1; number <= r.launches; ++number)
      r.rows.push_back(record_launch(plant, number, r.cells, engine(plant, lost)).value());
  return r;
}

std::string text_of(const Recording& r) {
  std::string text = recording_head(r);
  for (const RecordedLaunch& l : r.rows) text += recorded_line(l);
  return text;
}

TEST(RecordedTrials, AreReadAsWrittenAndGoOnBehindACutLine) {
  const Recording r = recording();
  const std::string text = text_of(r);
  const auto read = parse_recording(text, "file");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(text_of(*read), text);
  const auto cut = parse_recording(text.substr(0, text.size() - 5), "file");
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->rows.size() + 1, r.rows.size());
  EXPECT_FALSE(cut->holds(r.rows.back().plant, r.rows.back().number));
  EXPECT_TRUE(cut->holds(r.rows.front().plant, 1));
}

TEST(RecordedTrials, LinesThatPlumbWouldNotWriteAreNamed) {
  const std::string text = text_of(recording());
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const auto read = parse_recording(changed.replace(at, from.size(), to), "file");
    EXPECT_FALSE(read) << to;
    return read ? std::string() : read.error().message;
  };
  EXPECT_NE(refused("\"version\":1", "\"version\":2").find("file:1: "), std::string::npos);
  EXPECT_NE(refused("......", ".....").find("file:2: "), std::string::npos);
  EXPECT_NE(refused("......", "..z...").find("file:2: "), std::string::npos);
  refused("\"side\":\"off\"", "\"side\":\"both\"");
  refused("\"turns\":[", "\"turn\":[");
  refused("\"title\":\"plumb", "\"title\":\"lead");
  EXPECT_FALSE(parse_recording("", "file"));
  EXPECT_FALSE(parse_recording("{", "file"));
  EXPECT_FALSE(parse_recording("{}\n", "file"));
}

TEST(RecordedTrials, TheGoodSideIsAskedInTheFirstLaunchOnly) {
  const RecordedPlant plant{"lost", "all", "a", "on"};
  const auto first = record_launch(plant, 1, {"turns"}, engine(plant, 6));
  const auto second = record_launch(plant, 2, {"turns"}, engine(plant, 6));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->marks.at("turns"), (std::vector<std::string>{"xxxxxx", "......", "xxxxxx", "......"}));
  EXPECT_EQ(second->marks.at("turns"), (std::vector<std::string>{"xxxxxx", "", "xxxxxx", ""}));
  const auto step = record_launch({"lost", "always", "", "step"}, 1, {"turns"}, engine({"", "", "", "step"}, 6));
  ASSERT_TRUE(step);
  EXPECT_EQ(step->marks.at("turns"), (std::vector<std::string>{"xxxxxx", "", "xxxxxx", ""}));
  const auto failed =
      record_launch(plant, 1, {"turns"}, [](const auto&, const auto&) -> Result<std::string> { return error("gone"); });
  EXPECT_FALSE(failed);
}

TEST(BenchRecorded, FindsPlantsThatBreakAnswersAndAccusesNoSoundDeployment) {
  const RecordedBenchOptions options{.investigations = 140, .switches = 8, .seed = 5};
  const auto result = bench_recorded(recording(), options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->plants, 6);
  EXPECT_EQ(result->breaking, 4);
  for (const auto* worlds : {&result->restarts, &result->requests})
    for (const WorldScore& w : *worlds) {
      EXPECT_EQ(w.runs, 20) << w.name;
      EXPECT_EQ(w.wrong_stated, 0) << w.name;
      EXPECT_GE(w.right, 18) << w.name;
    }
  for (std::size_t i = 0; i < result->restarts.size(); ++i) {
    if (result->methods.size() <= i) break;
    EXPECT_LT(result->requests[i].search_launches, result->restarts[i].search_launches / 2);
    EXPECT_GT(result->requests[i].turned, 2);
  }
  EXPECT_EQ(recorded_bench_json(*result), recorded_bench_json(*bench_recorded(recording(), options)));
  const auto j = nlohmann::json::parse(recorded_bench_json(*result));
  const std::string markdown = recorded_bench_markdown(*result, "file");
  for (const auto& w : j["restarts"])
    EXPECT_NE(markdown.find("| " + w["world"].get<std::string>() + " |"), std::string::npos);
}

TEST(BenchRecorded, NeedsSomethingToDrawFrom) {
  Recording r = recording();
  std::erase_if(r.rows, [](const RecordedLaunch& l) { return l.plant.kind == "none"; });
  EXPECT_FALSE(bench_recorded(r, {}));
  r = recording();
  std::erase_if(r.rows, [](const RecordedLaunch& l) { return l.plant.kind == "lost"; });
  EXPECT_FALSE(bench_recorded(r, {}));
}

}  // namespace
}  // namespace plumb::investigator
