#include "faults/check/questions.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace plumb::faults {
namespace {

class Questions : public testing::Test {
 protected:
  Questions() : encoding_(std::move(*load_encoding(std::string(PLUMB_SOURCE_DIR) + "/phantom/checkpoint"))) {}

  std::vector<std::int32_t> value_of(const Fact& fact) const { return encoding_->encode(fact.value); }
  static bool stands_at(std::span<const std::int32_t> ids, std::int64_t position,
                        const std::vector<std::int32_t>& part) {
    return std::ranges::equal(ids.subspan(static_cast<std::size_t>(position), part.size()), part);
  }

  std::unique_ptr<Encoding> encoding_;
};

TEST_F(Questions, SeedDecidesTheConversation) {
  const auto write = [&](std::uint64_t seed) {
    Dialogue c(*encoding_, seed);
    const Fact fact = c.new_fact();
    c.state(fact);
    c.fill(200);
    return c.ask(fact).prompt;
  };
  EXPECT_EQ(write(1), write(1));
  EXPECT_NE(write(1), write(2));
}

TEST_F(Questions, FillsToTheToken) {
  for (std::int64_t count = Dialogue::kMinFill; count < 260; ++count) {
    Dialogue c(*encoding_, static_cast<std::uint64_t>(count));
    c.fill(count);
    EXPECT_EQ(c.tokens(), 1 + count);
  }
}

TEST_F(Questions, ValueStandsWhereItIsPut) {
  for (std::int64_t position = 123; position < 300; position += 17) {
    Dialogue c(*encoding_, static_cast<std::uint64_t>(position));
    const Fact fact = c.new_fact();
    c.state_at(fact, position);
    EXPECT_TRUE(stands_at(c.ids(), position, value_of(fact)));
    EXPECT_EQ(value_of(fact).size(), fact.value.size());  // a token a character
    Dialogue plain(*encoding_, 7);
    const std::int64_t at = plain.state(fact);
    EXPECT_TRUE(stands_at(plain.ids(), at, value_of(fact)));
  }
}

TEST_F(Questions, PromptEndsWhereItIsAskedTo) {
  for (std::int64_t end = 160; end < 210; ++end) {
    Dialogue c(*encoding_, static_cast<std::uint64_t>(end));
    const Fact fact = c.new_fact();
    c.state_at(fact, 120);
    EXPECT_EQ(static_cast<std::int64_t>(c.ask_at(fact, end).prompt.size()), end);
  }
}

TEST_F(Questions, AnswerIsTheValueAndAnEndAndContinuesTheConversation) {
  Dialogue c(*encoding_, 3);
  const Fact fact = c.new_fact();
  c.state(fact);
  for (int i = 0; i < 20; ++i) {
    const Question question = c.ask(fact);
    EXPECT_TRUE(std::ranges::equal(question.prompt, c.ids()));
    ASSERT_GT(question.answer.size(), 4u);
    EXPECT_EQ(question.answer.back(), encoding_->eos());
    EXPECT_TRUE(stands_at(question.answer, 0, value_of(fact)));
    c.answer();
    EXPECT_TRUE(stands_at(c.ids(), static_cast<std::int64_t>(question.prompt.size()), question.answer));
  }
}

TEST_F(Questions, ChatMessagesRenderToTheSameIds) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Dialogue d(*encoding_, seed);
    const Fact fact = d.new_fact();
    d.fill(30);
    d.state(fact);
    d.ask(fact);
    d.answer();
    const Question question = d.ask(fact);
    const auto chat = encoding_->lay_out(question.chat);
    ASSERT_TRUE(chat) << chat.error().message;
    EXPECT_EQ(prompt_ids(**chat), question.prompt);
  }
}

TEST_F(Questions, DivergingValueHasTheSameFormatAndTokens) {
  Dialogue c(*encoding_, 5);
  for (int i = 0; i < 100; ++i) {
    const Fact fact = c.new_fact();
    const Fact other = diverging(fact, 3);
    EXPECT_EQ(fact.value.substr(0, 3), other.value.substr(0, 3));
    EXPECT_NE(fact.value, other.value);
    EXPECT_EQ(value_of(fact).size(), value_of(other).size());
  }
}

TEST_F(Questions, StatementInTwoStepsIsAPrefixOfTheWhole) {
  Dialogue c(*encoding_, 9);
  const Fact fact = c.new_fact();
  const auto begun = c.state_in_two(fact, 2);
  EXPECT_TRUE(stands_at(c.ids(), 0, begun));
  const auto value = value_of(fact);
  EXPECT_TRUE(stands_at(c.ids(), static_cast<std::int64_t>(begun.size()) - 2, value));
}

}  // namespace
}  // namespace plumb::faults
