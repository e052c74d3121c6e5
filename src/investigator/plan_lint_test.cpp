#include "investigator/plan_lint.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"

namespace plumb::investigator {
namespace {

// The example of the documentation, which has every key there is.
std::string documented() {
  const auto page = read_file(PLUMB_SOURCE_DIR "/docs/deployment.md");
  EXPECT_TRUE(page);
  const std::size_t begin = page->find("```toml\n") + 8;
  std::string text = page->substr(begin, page->find("```\n", begin) - begin);
  const std::string config = "phantom/checkpoint/config.json";  // relative to the repository's folder
  return text.replace(text.find(config), config.size(), PLUMB_SOURCE_DIR "/" + config);
}

TEST(PlanLint, EveryKeyHasAMeaning) {
  std::vector<FileNote> notes;
  const auto deployment = parse_deployment(documented(), "d.toml", &notes);
  ASSERT_TRUE(deployment) << deployment.error().message;
  EXPECT_GT(notes.size(), 60u);
  for (const FileNote& note : notes) EXPECT_NE(meaning_of(note.key), "") << note.key << " in line " << note.line;
  EXPECT_EQ(meaning_of("[[process]] comand"), "");
  EXPECT_NE(meaning_of("[[switch]] sides fa3 args"), "");
}

TEST(PlanLint, EveryLineThatSaysSomethingIsShownAndExplained) {
  const std::string text = documented();
  std::vector<FileNote> notes;
  ASSERT_TRUE(parse_deployment(text, "d.toml", &notes));
  const std::string explained = explain_file(text, notes);
  std::istringstream lines(text);
  std::uint32_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t first = line.find_first_not_of(' ');
    const bool says = first != std::string::npos && line[first] != '#';
    EXPECT_EQ(explained.find(fmt::format("{:>4} | {}\n", number, line)) != std::string::npos, says) << line;
    // A line that begins a key or a table is explained; one that goes on with a list is not.
    if (!says || (line[0] != '[' && line.find(" = ") == std::string::npos)) continue;
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [&](const FileNote& n) { return n.line == number; })) << line;
  }
}

TEST(PlanLint, EveryExampleIsADeploymentFileWithAPlan) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PLUMB_SOURCE_DIR "/docs/examples")) {
    if (entry.path().extension() != ".toml") continue;
    ++examples;
    const auto text = read_file(entry.path());
    ASSERT_TRUE(text);
    std::vector<FileNote> notes;
    const auto deployment = parse_deployment(*text, entry.path().filename(), &notes);
    ASSERT_TRUE(deployment) << deployment.error().message;
    const auto plan = explain_plan(*deployment, {}, *text, notes);
    ASSERT_TRUE(plan) << plan.error().message;
    for (const ProcessSpec& process : deployment->processes)
      EXPECT_NE(plan->find("process " + process.name), std::string::npos);
    EXPECT_TRUE(explained_plan_json(*deployment, {}, notes));
  }
  EXPECT_GE(examples, 4);
}

TEST(PlanLint, LaunchesAreShownAsTheyWillBeWithoutSecrets) {
  const auto d = parse_deployment(
      "[[process]]\nname = \"s\"\nvia = \"docker\"\nimage = \"i\"\ncommand = [\"engine\", \"{port:s}\"]\nenv = "
      "{HF_TOKEN = "
      "\"{env:PLUMB_NO_SUCH_VARIABLE}\"}\n[[endpoint]]\nurl = \"http://127.0.0.1:{port:s}\"\n[[switch]]\nname = "
      "\"a\"\nsides = {off = {args = [\"--no-a\"]}, on = {}}\n",
      "d.toml");
  ASSERT_TRUE(d) << d.error().message;
  const std::string text = explain_launches(*d);
  for (const char* part : {"not set: the environment variable PLUMB_NO_SUCH_VARIABLE", "--env HF_TOKEN i engine",
                           "reference:   HF_TOKEN=", "--no-a", "then, also when plumb is killed: sh -c",
                           "switch a: turned by a launch; off: args --no-a; on: nothing; deployed on"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const auto json = lint_json(*d, {});
  EXPECT_EQ(json["processes"][0]["via"], "docker");
  EXPECT_EQ(json["not_set"][0], "PLUMB_NO_SUCH_VARIABLE");
}

}  // namespace
}  // namespace plumb::investigator
