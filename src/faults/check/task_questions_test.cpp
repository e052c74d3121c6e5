#include "faults/check/task_questions.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

namespace plumb::faults {
namespace {

const std::string kHome = PLUMB_SOURCE_DIR;

TEST(TaskQuestions, ContinueEachOtherAndEndWithTheirTurn) {
  const auto encoding = load_encoding(kHome + "/phantom/checkpoint");
  ASSERT_TRUE(encoding) << encoding.error().message;
  const auto lengths = read_task_questions(task_questions_file(kHome), **encoding);
  ASSERT_TRUE(lengths) << lengths.error().message;
  ASSERT_GE(lengths->size(), 4u);
  for (const TaskLength& length : *lengths) {
    EXPECT_EQ(length.groups() * length.group, length.conversations.size());
    for (const TaskConversation& c : length.conversations) {
      for (std::size_t i = 0; i < c.questions.size(); ++i) {
        const Question& question = c.questions[i];
        ASSERT_GE(question.answer.size(), 2u);
        EXPECT_EQ(question.answer.back(), (*encoding)->eos());
        EXPECT_LE(static_cast<std::int64_t>(question.prompt.size() + question.answer.size()), length.tokens);
        if (i == 0) continue;
        std::vector<std::int32_t> before = c.questions[i - 1].prompt;
        before.insert(before.end(), c.questions[i - 1].answer.begin(), c.questions[i - 1].answer.end());
        ASSERT_GT(question.prompt.size(), before.size());
        EXPECT_TRUE(std::equal(before.begin(), before.end(), question.prompt.begin())) << c.task;
      }
    }
  }
}

TEST(TaskQuestions, AFileThatIsNoneIsAnErrorThatNamesIt) {
  const auto encoding = load_encoding(kHome + "/phantom/checkpoint");
  ASSERT_TRUE(encoding);
  for (const std::string name : {"/no-such-file.gz", "/README.md"}) {
    const auto lengths = read_task_questions(kHome + name, **encoding);
    ASSERT_FALSE(lengths);
    EXPECT_NE(lengths.error().message.find(name), std::string::npos) << lengths.error().message;
  }
}

}  // namespace
}  // namespace plumb::faults
