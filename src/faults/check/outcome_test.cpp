#include "faults/check/outcome.h"

#include <cmath>

#include <gtest/gtest.h>

namespace plumb::faults {
namespace {

Sightings all_right() {
  Sightings s;
  const Answer right{.right = true, .logprobs = {-0.1f, -0.2f, -0.1f}};
  s.near = s.boundary = s.needle = s.turns = std::vector<Answer>(8, right);
  s.hits_answered = s.crowd_answered = std::vector<Answer>(10, right);
  s.exacting = std::vector<Answer>(20, right);
  s.hit = {0, 10};
  s.crowd = {0, 9};
  s.decode = {0, 3};
  s.repeats = {1, 1, 1, 1};
  s.replies = {5, 6};
  s.scores = std::vector<std::vector<float>>(4, std::vector<float>(400, -1.0f));
  s.hits = std::vector<std::vector<float>>(4, std::vector<float>(text_cuts().size(), -1.0f));
  s.decoded = std::vector<std::vector<float>>(4, std::vector<float>(400 - kDecodeFrom + 1, -1.0f));
  s.likeliest = std::vector<std::vector<std::int32_t>>(16, std::vector<std::int32_t>(40, 7));
  s.trace = {{"prefill: layers.0.q", 1}, {"prefill: layers.0.attn_heads", 2}};
  return s;
}

const Ground kGround{all_right(), all_right(), 0};

TEST(SignEValue, IsTheClosedFormForWorseOnly) {
  for (const int n : {0, 1, 5, 9, 10, 30})
    EXPECT_NEAR(sign_e_value(n, 0), std::exp2(n + 1) * (1 - std::exp2(-n - 1)) / (n + 1), 1e-4 * std::exp2(n)) << n;
  EXPECT_GE(sign_e_value(10, 0), 100);
  EXPECT_LT(sign_e_value(9, 1), 100);
  EXPECT_LT(sign_e_value(5, 5), 1);
}

TEST(RateEValue, IsTheClosedFormForAllFailedAndForNone) {
  for (const int n : {1, 3, 8}) {
    EXPECT_NEAR(rate_e_value(n, n, 0.5) / (std::exp2(n + 1) * (1 - std::exp2(-n - 1)) / (n + 1)), 1, 1e-5) << n;
    EXPECT_NEAR(rate_e_value(0, n, 0.02), 1.0 / (n + 1), 1e-5) << n;
  }
  EXPECT_GT(rate_e_value(5, 16, 0.02), 600);
  EXPECT_LT(rate_e_value(3, 16, 0.02), 100);
}

TEST(SignatureText, ReadsWhatItWrites) {
  const Signature signature{Count{0, 8}, {2, 8}, {5, 5}, {0, 8}, {1, 10}, {9, 9}, {2, 3}, {0, 11}, {4, 20}};
  EXPECT_EQ(signature_text(signature), "S 0/8 B 2/8 N 5/5 T 0/8 H 1/10 C 9/9 D 2/3 R 0/11 E 4/20");
  EXPECT_EQ(*parse_signature(signature_text(signature)), signature);
  EXPECT_EQ(signature_letters(signature), ".~x.~xx.~");
  EXPECT_FALSE(parse_signature("S 0/8 B 2/8"));
  EXPECT_FALSE(parse_signature("B 0/8 S 2/8 N 5/5 T 0/8 H 1/10 C 9/9 D 2/3 R 0/11 E 4/20"));
}

TEST(Outcome, IsNothingWhenAllIsEqual) {
  const Outcome outcome = outcome_of(all_right(), {{1, 1, 1, 1}}, kGround);
  EXPECT_EQ(outcome.word, kNothing);
  EXPECT_EQ(outcome.site, "");
  EXPECT_EQ(signature_text(outcome.signature), "S 0/8 B 0/8 N 0/8 T 0/8 H 0/10 C 0/9 D 0/3 R 0/7 E 0/20");
}

TEST(Outcome, IsNothingWhenTheSameAnswersAreWrongWithoutAFault) {
  Sightings wrong = all_right();
  wrong.exacting[3].right = wrong.needle[0].right = false;
  EXPECT_EQ(outcome_of(wrong, {}, {wrong, wrong, 0}).word, kNothing);
}

TEST(Outcome, IsADifferenceWhenAnyBitDiffers) {
  const auto word_after = [](auto&& change, const std::vector<std::vector<std::uint64_t>>& further = {}) {
    Sightings seen = all_right();
    change(seen);
    return outcome_of(seen, further, kGround).word;
  };
  EXPECT_EQ(word_after([](Sightings& s) { s.hit.differing = 1; }), kDifference);
  EXPECT_EQ(word_after([](Sightings& s) { s.trace[1].digest = 3; }), kDifference);
  EXPECT_EQ(word_after([](Sightings& s) { s.likeliest[2][5] = 8; }), kDifference);
  EXPECT_EQ(word_after([](Sightings& s) { s.repeats[3] = 2; }), kDifference);
  EXPECT_EQ(word_after([](Sightings& s) { s.replies[1] = 7; }), kDifference);
  EXPECT_EQ(word_after([](Sightings&) {}, {{1, 1}, {1, 2}}), kDifference);
}

TEST(Outcome, NamesTheFirstSiteThatDiffers) {
  Sightings seen = all_right();
  seen.trace[1].digest = 3;
  EXPECT_EQ(outcome_of(seen, {}, kGround).site, "prefill: layers.0.attn_heads");
}

TEST(Outcome, IsOverBudgetWhenDExceedsShiftAndTwiceTheHonestOne) {
  Sightings seen = all_right();
  for (auto& text : seen.scores)
    for (float& score : text) score += 0.25f;
  Outcome outcome = outcome_of(seen, {}, kGround);
  EXPECT_EQ(outcome.word, kOverBudget);
  EXPECT_DOUBLE_EQ(outcome.d_cold, 0.5 * 0.25 * 0.25);
  Ground roomy = kGround;
  roomy.shift = 0.04;
  EXPECT_EQ(outcome_of(seen, {}, roomy).word, kNothing);
  roomy.shift = 0;
  roomy.honest.scores = seen.scores;  // the honest side is as far off
  EXPECT_EQ(outcome_of(seen, {}, roomy).word, kNothing);
}

TEST(Outcome, IsDamageFromAFewLostAnswersOfOneProbeOn) {
  Sightings seen = all_right();
  for (int i = 0; i < 3; ++i) seen.needle[static_cast<std::size_t>(i)].right = false;
  EXPECT_NE(outcome_of(seen, {}, kGround).word, kDamage);  // three of eight: 280 for this probe, 40 on average
  seen.needle[3].right = false;
  EXPECT_EQ(outcome_of(seen, {}, kGround).word, kDamage);
  EXPECT_EQ(signature_letters(outcome_of(seen, {}, kGround).signature), "..~......");
  Ground poor = kGround;  // the reference loses them too
  poor.reference.needle = seen.needle;
  EXPECT_NE(outcome_of(seen, {}, poor).word, kDamage);
}

TEST(Outcome, IsDamageWhenAnswersBecomeLessLikely) {
  Sightings seen = all_right();
  for (auto* list : {&seen.needle, &seen.turns})
    for (Answer& answer : *list) answer.logprobs[0] -= 0.25f;
  EXPECT_EQ(outcome_of(seen, {}, kGround).word, kDamage);
  EXPECT_NEAR(outcome_of(seen, {}, kGround).lost_nats, 0.25 * 16 / 72, 1e-6);
}

TEST(Outcome, CountsUnscoredTextAsLost) {
  Sightings seen = all_right();
  seen.scores[0].clear();  // the model gave no finite logits
  EXPECT_GT(outcome_of(seen, {}, kGround).d_cold, 50);
}

}  // namespace
}  // namespace plumb::faults
