#include "faults/check/trials.h"

#include <cmath>

#include <gtest/gtest.h>

#include "faults/check/planted.h"
#include "faults/plants.h"
#include "switches/on_side.h"

namespace plumb::faults {
namespace {

const std::string kHome = PLUMB_SOURCE_DIR;

// A reply to the answer {1, 2} over a vocabulary of four, with probability p of the expected id at each place.
TaskReply reply_with(std::vector<double> p, bool right) {
  TaskReply reply{.right = right, .no_answer = false, .logprobs = {}, .digest = right ? 1u : 2u};
  for (std::size_t i = 0; i < p.size(); ++i) {
    std::vector<float> all(4, static_cast<float>(std::log((1 - p[i]) / 3)));
    all[i + 1] = static_cast<float>(std::log(p[i]));
    reply.logprobs.push_back(std::move(all));
  }
  return reply;
}

TEST(TrialDifference, IsWhatItsFormulasSay) {
  const std::vector<Question> questions{{.chat = {}, .prompt = {0}, .answer = {1, 2}}};
  const Trial honest{.replies = {reply_with({0.8, 0.8}, true), reply_with({0.8, 0.8}, true)}};
  const Trial planted{.replies = {reply_with({0.4}, false), reply_with({0.8, 0.8}, true)}, .decode_gap = 0.25};
  const TrialDifference t = difference_of(honest, planted, questions);
  EXPECT_EQ(t.lost, 1);
  EXPECT_EQ(t.won, 0);
  EXPECT_TRUE(t.differs);
  EXPECT_NEAR(t.nats, std::log(2), 1e-6);
  EXPECT_NEAR(t.d, 0.5 * std::pow(std::log(2), 2) / 3, 1e-6);  // one of three places
  const double kl = 0.8 * std::log(2) + 0.2 * std::log((0.2 / 3) / (0.6 / 3));
  EXPECT_NEAR(t.kl, kl / 3, 1e-6);
  EXPECT_EQ(t.decode_gap, 0.25);
  const TrialDifference none = difference_of(honest, honest, questions);
  EXPECT_EQ(none.nats, 0);
  EXPECT_EQ(none.kl, 0);
  EXPECT_FALSE(none.differs);
}

TEST(AskGroup, GivesTheSameBitsTwiceAndAFaultShows) {
  const auto subject = load_subject(kHome + "/phantom/checkpoint", task_questions_file(kHome));
  ASSERT_TRUE(subject) << subject.error().message;
  const Plant* plant = find_plant(plants(), "kv-fp8-scale", "unscaled-write");
  ASSERT_NE(plant, nullptr);
  const auto sides = detail::side_table;
  const auto conversations = subject->tasks.front().of_group(0).first(3);
  const Variant honest = honest_variant(*plant);
  const auto once = ask_group(*subject, honest, conversations, true);
  const auto again = ask_group(*subject, honest, conversations, false);
  const auto planted = ask_group(*subject, planted_variant(*plant, 1, 1), conversations, false);
  detail::side_table = sides;
  for (std::size_t i = 0; i < once.size(); ++i) {
    ASSERT_EQ(once[i].replies.size(), conversations[i].questions.size() + 1);
    EXPECT_EQ(once[i].decode_gap, 0);
    EXPECT_FALSE(difference_of(once[i], again[i], conversations[i].questions).differs);
    EXPECT_GT(difference_of(once[i], planted[i], conversations[i].questions).d, 1e-3);
  }
}

}  // namespace
}  // namespace plumb::faults
