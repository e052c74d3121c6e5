#include "faults/sensitivity/journal.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace plumb::faults {
namespace {

namespace fs = std::filesystem;

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::path(testing::TempDir()) / "plumb_sensitivity_journal";
  const fs::path file_ = folder_ / "card.journal";
};

TEST_F(JournalTest, KeepsWhatWasAppendedToTheBit) {
  ASSERT_TRUE(Journal::open(file_, "model a"));
  const TrialDifference trial{.lost = 1,
                              .won = 0,
                              .answers_missing = 1,
                              .answers_more = 0,
                              .nats = 0.1 + 0.2,
                              .d = 1.0 / 3,
                              .kl = 2e-300,
                              .decode_gap = -1,
                              .differs = true};
  ASSERT_TRUE(append_group(file_, {"moe-scale/twice", 256}, 0, {trial, {}}));
  ASSERT_TRUE(append_group(file_, {"moe-scale/twice", 256}, 1, {{}}));
  const auto journal = Journal::open(file_, "model a");
  ASSERT_TRUE(journal) << journal.error().message;
  const auto* groups = journal->find({"moe-scale/twice", 256});
  ASSERT_NE(groups, nullptr);
  ASSERT_EQ(groups->size(), 2u);
  const TrialDifference& read = groups->at(0).front();
  EXPECT_EQ(read.lost, 1);
  EXPECT_EQ(read.answers_missing, 1);
  EXPECT_EQ(read.nats, trial.nats);
  EXPECT_EQ(read.d, trial.d);
  EXPECT_EQ(read.kl, trial.kl);
  EXPECT_EQ(read.decode_gap, -1);
  EXPECT_TRUE(read.differs);
  EXPECT_EQ(journal->find({"moe-scale/twice", 1024}), nullptr);
}

// Cut at every byte, and appended to after that: what was whole before the cut is read, and what came after it.
TEST_F(JournalTest, AKillAtAnyByteLosesTheGroupInFlightAlone) {
  ASSERT_TRUE(Journal::open(file_, "m"));
  ASSERT_TRUE(append_group(file_, {"a/b", 256}, 0, {{.lost = 1}}));
  const auto whole = fs::file_size(file_);
  ASSERT_TRUE(append_group(file_, {"a/b", 256}, 1, {{.won = 1}}));
  std::ifstream in(file_, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  for (std::size_t cut = whole; cut < text.size(); ++cut) {
    std::ofstream(file_, std::ios::binary) << text.substr(0, cut);
    ASSERT_TRUE(Journal::open(file_, "m")) << cut;
    ASSERT_TRUE(append_group(file_, {"a/b", 512}, 0, {{}}));
    const auto journal = Journal::open(file_, "m");
    ASSERT_TRUE(journal) << cut;
    EXPECT_EQ(journal->find({"a/b", 256})->size(), cut + 1 == text.size() ? 2u : 1u) << cut;
    EXPECT_NE(journal->find({"a/b", 512}), nullptr) << cut;
  }
}

TEST_F(JournalTest, OfAnotherSubjectIsRefused) {
  ASSERT_TRUE(Journal::open(file_, "model a"));
  const auto other = Journal::open(file_, "model b");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("another checkpoint"), std::string::npos);
  EXPECT_FALSE(Journal::open(folder_ / "no" / "such.journal", "model a"));
}

}  // namespace
}  // namespace plumb::faults
