#include "investigator/journal.h"

#include <csignal>
#include <fstream>

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

namespace plumb::investigator {
namespace {

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("journal-{}-{}", ::getpid(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    file_ = folder_ / "journal.sqlite";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static CaseIdentity identity() { return {0xffff'ffff'ffff'fff1ull, "abc", {"short", "needle@256"}}; }

  static LaunchRecord launch(std::int64_t id) {
    LaunchRecord l;
    l.id = id;
    l.label = "ground/deployed/" + std::to_string(id);
    l.variant = {true, false, true};
    l.starts = 1;
    l.ready_s = 0.25;
    return l;
  }

  static TrialRecord trial(std::uint64_t seed) {
    TrialRecord t;
    t.item = {"hit", seed};
    t.grade = Grade::no_answer;
    t.at_s = 1.5 + static_cast<double>(seed % 1000);
    StepRecord s;
    s.step = "full";
    s.prompt_hash = "00ff";
    s.expected = "AB12";
    s.text = "line\nwith \"quotes\" é and \x01";
    s.finish_reason = "length";
    s.grade = Grade::no_answer;
    s.detail = "loop";
    s.graded = s.wants_hit = true;
    s.prompt_tokens = 300;
    s.expected_tokens = 299;
    s.seconds = 0.125;
    t.steps = {s, s};
    t.steps[1].cached_tokens = 128;
    return t;
  }

  std::filesystem::path folder_;
  std::filesystem::path file_;
};

TEST_F(JournalTest, ReadsBackWhatWasWritten) {
  {
    auto j = Journal::create(file_, identity());
    ASSERT_TRUE(j) << j.error().message;
    ASSERT_TRUE(j->put_launch(launch(1), 0.5));
    ASSERT_TRUE(j->add_trial(1, trial(~std::uint64_t{0})));
    LaunchRecord done = launch(1);
    done.status = LaunchRecord::Status::died;
    done.message = "out of memory";
    done.starts = 2;
    ASSERT_TRUE(j->put_launch(done, 9));
  }
  auto j = Journal::open(file_);
  ASSERT_TRUE(j) << j.error().message;
  EXPECT_EQ(j->identity().seed, identity().seed);
  EXPECT_EQ(j->identity().cells, identity().cells);
  const auto h = j->read();
  ASSERT_TRUE(h) << h.error().message;
  ASSERT_EQ(h->launches.size(), 1u);
  const LaunchRecord& l = h->launches[0];
  EXPECT_EQ(l.status, LaunchRecord::Status::died);
  EXPECT_EQ(l.message, "out of memory");
  EXPECT_EQ(l.starts, 2);
  EXPECT_EQ(l.variant, (Variant{true, false, true}));
  ASSERT_EQ(l.trials.size(), 1u);
  const TrialRecord& t = l.trials[0];
  EXPECT_EQ(t.item.seed, ~std::uint64_t{0});
  EXPECT_EQ(t.grade, Grade::no_answer);
  ASSERT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.steps[0].text, trial(0).steps[0].text);
  EXPECT_FALSE(t.steps[0].cached_tokens.has_value());
  EXPECT_EQ(t.steps[1].cached_tokens, 128);
  EXPECT_EQ(t.steps[1].prompt_tokens, 300);
  EXPECT_TRUE(t.steps[0].graded);
}

TEST_F(JournalTest, ReadsBackScoredTextsToTheBitAndWritesAllOfALaunchOrNone) {
  ScoreRecord scored{.item = score_items({}).front(), .prompt_hash = "ff", .expected_tokens = 250, .at_s = 3};
  scored.scores.status = Scores::Status::measured;
  scored.scores.tokens_hash = "aa";
  scored.scores.log_probabilities = {-0.1, -1.0 / 3, kLeastLogProbability, 0};
  scored.scores.prompt_tokens = 251;
  scored.scores.cached_tokens = 0;
  ScoreRecord generated{.item = score_items({}).back(), .wording = Wording::plain, .at_s = 4};
  generated.scores.status = Scores::Status::measured;
  generated.scores.generated = {{{"\u00e9", -1e-9}, {{"\u00e9", -1e-9}, {" ", -2.5}}}};
  ScoreRecord none{.item = score_items({})[1], .at_s = 5};
  none.scores.status = Scores::Status::not_offered;
  none.scores.message = "no";
  {
    auto j = Journal::create(file_, identity());
    ASSERT_TRUE(j->put_launch(launch(1), 0.5));
    ASSERT_TRUE(j->add_scores(1, {scored, generated, none}));
    // The second of these is there already, so that the first is not kept either.
    ScoreRecord other = none;
    other.item = score_items({})[2];
    EXPECT_FALSE(j->add_scores(1, {other, none}));
  }
  const auto h = Journal::open(file_)->read();
  ASSERT_TRUE(h) << h.error().message;
  const auto& scores = h->launches[0].scores;
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_EQ(scores[0].item, scored.item);
  EXPECT_EQ(scores[0].scores.log_probabilities, scored.scores.log_probabilities);
  EXPECT_EQ(scores[0].scores.tokens_hash, "aa");
  EXPECT_EQ(scores[0].scores.prompt_tokens, 251);
  EXPECT_EQ(scores[0].scores.cached_tokens, 0);
  EXPECT_EQ(scores[1].wording, Wording::plain);
  EXPECT_EQ(scores[1].scores.generated, generated.scores.generated);
  EXPECT_EQ(scores[2].scores.status, Scores::Status::not_offered);
  EXPECT_EQ(scores[2].scores.message, "no");
  EXPECT_EQ(h->elapsed_s, 5);
  EXPECT_EQ(h->tokens(), 251);
  for (const char* sql :
       {"UPDATE scores SET item = 'scored/warm/256/0' WHERE id = 1", "UPDATE scores SET status = 'unanswered'",
        "UPDATE scores SET launch = 9", "UPDATE scores SET scores = '{}'", "UPDATE scores SET at_s = -1",
        "UPDATE scores SET scores = replace(scores, '-0.1', '0.1')"}) {
    const auto copy = folder_ / "changed.sqlite";
    std::filesystem::copy_file(file_, copy, std::filesystem::copy_options::overwrite_existing);
    sqlite3* db = nullptr;
    sqlite3_open(copy.c_str(), &db);
    sqlite3_exec(db, "PRAGMA foreign_keys = OFF", nullptr, nullptr, nullptr);
    ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    sqlite3_close(db);
    const auto changed = Journal::open(copy)->read();
    ASSERT_FALSE(changed) << sql;
    EXPECT_NE(changed.error().message.find("scored text"), std::string::npos) << changed.error().message;
  }
}

TEST_F(JournalTest, RefusesWhatIsNotOurs) {
  EXPECT_NE(Journal::open(file_).error().message.find("no journal"), std::string::npos);
  std::ofstream(file_) << "not a database at all, but some longer text that SQLite has to look at";
  EXPECT_NE(Journal::open(file_).error().message.find("no journal of plumb"), std::string::npos);
  std::filesystem::remove(file_);
  sqlite3* db = nullptr;
  sqlite3_open(file_.c_str(), &db);
  sqlite3_exec(db, "CREATE TABLE identity (x)", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  EXPECT_NE(Journal::open(file_).error().message.find("no journal of plumb"), std::string::npos);
}

TEST_F(JournalTest, RefusesAnotherVersionAndASecondBeginning) {
  ASSERT_TRUE(Journal::create(file_, identity()));
  EXPECT_NE(Journal::create(file_, identity()).error().message.find("journal already"), std::string::npos);
  sqlite3* db = nullptr;
  sqlite3_open(file_.c_str(), &db);
  sqlite3_exec(db, "PRAGMA user_version = 7", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  EXPECT_NE(Journal::open(file_).error().message.find("version 7"), std::string::npos);
}

TEST_F(JournalTest, ADamagedFileIsRefusedNotRead) {
  {
    auto j = Journal::create(file_, identity());
    ASSERT_TRUE(j->put_launch(launch(1), 0));
    for (std::uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(j->add_trial(1, trial(i)));
  }
  const auto size = std::filesystem::file_size(file_);
  for (std::uintmax_t keep = 0; keep < size; keep += 1024) {
    const auto copy = folder_ / "cut.sqlite";
    std::filesystem::copy_file(file_, copy, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(copy, keep);
    if (auto j = Journal::open(copy)) {
      EXPECT_FALSE(j->read()) << keep;
    }
  }
}

TEST_F(JournalTest, RowsThatPlumbWouldNotWriteAreRefusedInItsWords) {
  for (const char* sql : {"UPDATE launches SET variant = '1x1'",
                          "UPDATE launches SET status = 'fine'",
                          "UPDATE launches SET starts = 0",
                          "UPDATE launches SET starts = 1e12",
                          "UPDATE launches SET starts = 'many'",
                          "UPDATE launches SET ready_s = -1",
                          "UPDATE launches SET host = 1",
                          "UPDATE launches SET host = 'none'",
                          "UPDATE launches SET at_s = 9e999",
                          "UPDATE launches SET at_s = 'x'",
                          "UPDATE launches SET id = 2",
                          "UPDATE trials SET launch = 7",
                          "UPDATE trials SET cell = 'needle@1000000000'",
                          "UPDATE trials SET cell = ''",
                          "UPDATE trials SET seed = 'x'",
                          "UPDATE trials SET seed = '18446744073709551616'",
                          "UPDATE trials SET wording = 'latin'",
                          "UPDATE trials SET grade = 'right'",
                          "UPDATE trials SET grade = 'good'",
                          "UPDATE trials SET steps = '{'",
                          "UPDATE trials SET steps = '[]'",
                          "UPDATE trials SET steps = '[{}]'",
                          "UPDATE trials SET steps = replace(steps, ':299', ':-299')",
                          "UPDATE trials SET steps = replace(steps, '0.125', '-1')",
                          "UPDATE trials SET at_s = -1",
                          "UPDATE identity SET seed = 'x'",
                          "UPDATE identity SET cells = '[\"nothing\"]'",
                          "UPDATE identity SET cells = '[]'",
                          "UPDATE identity SET cells = 'x'",
                          "UPDATE identity SET cells = '[\"short\",\"short\"]'"}) {
    std::filesystem::remove(file_);
    {
      auto j = Journal::create(file_, identity());
      ASSERT_TRUE(j->put_launch(launch(1), 0));
      ASSERT_TRUE(j->add_trial(1, trial(1)));
    }
    sqlite3* db = nullptr;
    sqlite3_open(file_.c_str(), &db);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
    auto j = Journal::open(file_);
    const auto history = j ? j->read() : Result<History>(tl::unexpected(j.error()));
    ASSERT_FALSE(history) << sql;
    const std::string& message = history.error().message;
    EXPECT_NE(message.find("the journal is damaged: "), std::string::npos) << sql << ": " << message;
    for (const char* foreign : {"sto", "expected access", "json", "exception"})
      EXPECT_EQ(message.find(foreign, message.find("damaged")), std::string::npos) << message;
  }
}

TEST_F(JournalTest, AKillLosesAtMostTheTrialInFlight) {
  constexpr int kKills = 12;
  for (int kill = 0; kill < kKills; ++kill) {
    std::filesystem::remove(file_);
    for (const char* rest : {"-journal", "-wal", "-shm"}) std::filesystem::remove(file_.string() + rest);
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(told[0]);
      auto j = Journal::create(file_, identity());
      if (!j || !j->put_launch(launch(1), 0)) ::_exit(1);
      for (std::uint64_t i = 0;; ++i) {
        if (!j->add_trial(1, trial(i))) ::_exit(1);
        const char one = 1;
        if (::write(told[1], &one, 1) != 1) ::_exit(1);
      }
    }
    ::close(told[1]);
    char byte = 0;
    std::size_t acknowledged = 0;
    for (int i = 0; i < 1 + 3 * kill; ++i) acknowledged += ::read(told[0], &byte, 1) == 1 ? 1u : 0u;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(told[0], &byte, 1) == 1) ++acknowledged;
    ::close(told[0]);
    auto j = Journal::open(file_);
    ASSERT_TRUE(j) << j.error().message;
    const auto h = j->read();
    ASSERT_TRUE(h) << h.error().message;
    ASSERT_EQ(h->launches.size(), 1u);
    const std::size_t kept = h->launches[0].trials.size();
    EXPECT_GE(kept, acknowledged);
    EXPECT_LE(kept, acknowledged + 1);
    for (std::size_t i = 0; i < kept; ++i) EXPECT_EQ(h->launches[0].trials[i].item.seed, i);
  }
}

TEST_F(JournalTest, AJournalThatCannotBeWrittenIsStillOurs) {
  ASSERT_TRUE(Journal::create(file_, identity()));
  // What a full disk does to it: the files beside it cannot be made.
  std::filesystem::create_directories(file_.string() + "-wal/x");
  const auto refused = Journal::open(file_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("cannot be opened"), std::string::npos) << refused.error().message;
  EXPECT_EQ(refused.error().message.find("no journal of plumb"), std::string::npos) << refused.error().message;
  std::filesystem::remove_all(file_.string() + "-wal");
  EXPECT_TRUE(Journal::open(file_));
}

}  // namespace
}  // namespace plumb::investigator
