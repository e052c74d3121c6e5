#include "investigator/source_tree.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/durable_file.h"
#include "investigator/run_program.h"

namespace plumb::investigator {
namespace {

namespace fs = std::filesystem;

// A repository of three commits: value.txt says one, then two; other.txt is added last.
class SourceTree : public testing::Test {
 protected:
  SourceTree() {
    char folder[] = "/tmp/plumb-source-test-XXXXXX";
    folder_ = mkdtemp(folder);
    repository_ = folder_ / "repository";
    fs::create_directories(repository_);
    git("init --quiet");
    commit("value.txt", "one\n");
    commit("value.txt", "two\n");
    two_ = git("rev-parse HEAD");
    commit("other.txt", "other\n");
  }
  ~SourceTree() override { fs::remove_all(folder_); }

  std::string git(const std::string& line) {
    const auto output =
        run_program({{"sh", "-c", "git -c user.name=t -c user.email=t@t " + line}, {}, repository_}, 60);
    EXPECT_TRUE(output && output->ok()) << line << ": " << (output ? output->text : output.error().message);
    std::string text = output ? output->text : "";
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  void commit(const std::string& file, const std::string& text) {
    ASSERT_TRUE(write_file_durably(repository_ / file, text));
    git("add -A");
    git("commit --quiet -m " + file);
  }

  Deployment deployment(const std::string& off_patch, const std::string& build = "") {
    const std::string text =
        "[[process]]\nname = \"s\"\ncommand = [\"{source}/run\", \"{port:s}\"]\n[[endpoint]]\nurl = "
        "\"http://127.0.0.1:{port:s}\"\n[source]\nrepository = \"" +
        repository_.string() + "\"\n" + build +
        "\n[[switch]]\nname = \"p\"\napply = \"patch\"\nsides = {off = {patch = \"" + off_patch + "\"}, on = {}}\n";
    const auto parsed = parse_deployment(text, "d.toml");
    EXPECT_TRUE(parsed) << parsed.error().message;
    return parsed.value_or(Deployment{});
  }
  tl::expected<void, SourceFailure> prepare(const Deployment& d, bool on) {
    return prepare_source_tree(d, {on}, tree(), folder_ / "build.log");
  }
  fs::path tree() const { return folder_ / "case" / "tree"; }
  std::string content(const fs::path& file) { return plumb::read_file(file).value_or(""); }
  // Everything of the repository that git can show, its own files included.
  std::string state() {
    return git("status --porcelain") + git("rev-parse HEAD") + git("worktree list") + git("branch -a") +
           git("stash list") + content(repository_ / "value.txt") + content(repository_ / ".git/index");
  }

  fs::path folder_, repository_;
  std::string two_;
};

TEST_F(SourceTree, RevertsACommitAndLeavesTheRepositoryAlone) {
  const std::string before = state();
  const Deployment d = deployment(two_);
  ASSERT_TRUE(prepare(d, true));
  EXPECT_EQ(content(tree() / "value.txt"), "two\n");
  const auto reverted = prepare(d, false);
  ASSERT_TRUE(reverted) << reverted.error().message;
  EXPECT_EQ(content(tree() / "value.txt"), "one\n");
  EXPECT_EQ(content(tree() / "other.txt"), "other\n");
  ASSERT_TRUE(prepare(d, true));
  EXPECT_EQ(content(tree() / "value.txt"), "two\n") << "the same tree again, as it was";
  EXPECT_EQ(state(), before);
  EXPECT_TRUE(remove_source_tree(tree()));
  EXPECT_FALSE(fs::exists(tree()));
}

TEST_F(SourceTree, AppliesAPatchFileOnWhatIsNotCommittedYet) {
  ASSERT_TRUE(write_file_durably(repository_ / "other.txt", "changed\n"));
  const fs::path patch = folder_ / "three.patch";
  ASSERT_TRUE(write_file_durably(patch, "--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-two\n+three\n"));
  const std::string before = state();
  const auto ready = prepare(deployment(patch.string()), false);
  ASSERT_TRUE(ready) << ready.error().message;
  EXPECT_EQ(content(tree() / "value.txt"), "three\n");
  EXPECT_EQ(content(tree() / "other.txt"), "changed\n");
  EXPECT_EQ(state(), before);
}

TEST_F(SourceTree, WhatDoesNotApplyOrBuildIsTheVariantsAndNobodyElses) {
  const auto unknown = prepare(deployment("no-such-commit"), false);
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(unknown.error().of_variant);
  EXPECT_NE(unknown.error().message.find("neither a patch file nor a commit"), std::string::npos);
  const fs::path patch = folder_ / "bad.patch";
  ASSERT_TRUE(write_file_durably(patch, "--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-nine\n+three\n"));
  const auto conflict = prepare(deployment(patch.string()), false);
  ASSERT_FALSE(conflict);
  EXPECT_TRUE(conflict.error().of_variant);
  EXPECT_TRUE(prepare(deployment(patch.string()), true)) << "the other side does not need it";
  const std::string build = "build = [\"sh\", \"-c\", \"cat value.txt >> built; grep -q two value.txt\"]";
  EXPECT_TRUE(prepare(deployment(two_, build), true));
  const auto broken = prepare(deployment(two_, build), false);
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().of_variant);
  EXPECT_NE(broken.error().message.find("exit status 1"), std::string::npos) << broken.error().message;
  const auto none = prepare_source_tree(Deployment{.source = {.repository = folder_ / "none"}}, {}, tree(), "");
  ASSERT_FALSE(none);
  EXPECT_FALSE(none.error().of_variant);
}

TEST_F(SourceTree, WhatAKillLeavesIsRemovedAndWhatIsNotOursIsNot) {
  const Deployment d = deployment(two_);
  // Killed during the clone, and during a revert.
  fs::create_directories(tree().string() + ".part/.git");
  ASSERT_TRUE(prepare(d, true));
  ASSERT_TRUE(write_file_durably(tree() / ".git/REVERT_HEAD", two_ + "\n"));
  ASSERT_TRUE(write_file_durably(tree() / "value.txt", "<<<<<<<\n"));
  ASSERT_TRUE(write_file_durably(tree() / "stray.txt", "x"));
  const auto again = prepare(d, false);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(content(tree() / "value.txt"), "one\n");
  EXPECT_FALSE(fs::exists(tree() / "stray.txt"));
  EXPECT_TRUE(remove_source_tree(tree()));
  EXPECT_TRUE(remove_source_tree(tree())) << "nothing is left to remove";
  fs::create_directories(tree());
  ASSERT_TRUE(write_file_durably(tree() / "mine.txt", "x"));
  EXPECT_FALSE(remove_source_tree(tree()));
  EXPECT_FALSE(prepare(d, true));
  EXPECT_TRUE(fs::exists(tree() / "mine.txt"));
}

}  // namespace
}  // namespace plumb::investigator
