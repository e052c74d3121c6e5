// Replies as servers send them, from body to grade.

#include <deque>

#include <gtest/gtest.h>

#include "investigator/trial.h"

namespace plumb::investigator {
namespace {

Ask asked(const std::string& tool = {}) {
  Ask a;
  a.messages = {{"user", "?"}};
  a.expected = "K7-42-QX-3";
  a.facts = {{"code", "bakoru", "K7-42-QX-3", 2}, {"pin", "lidefa", "AB12-4", 5}};
  a.asked = 0;
  a.tool = tool;
  return a;
}

struct Recorded {
  const char* what;
  const char* body;
  Grade grade;
  const char* detail;
  const char* tool = "";
};

const Recorded kRecorded[]{
    {"reasoning taken out of the content",
     R"({"choices":[{"message":{"role":"assistant","reasoning_content":"It may be AB12-4. No.","content":"K7-42-QX-3"},"finish_reason":"stop"}]})",
     Grade::right, ""},
    {"the same under the other name, with content parts",
     R"({"choices":[{"message":{"role":"assistant","reasoning":"AB12-4?","content":[{"type":"text","text":"The code is K7-42-"},{"type":"text","text":"QX-3."}]},"finish_reason":"stop"}]})",
     Grade::right, ""},
    {"reasoning left in the content",
     R"({"choices":[{"message":{"role":"assistant","content":"Okay, AB12-4 is the pin.\n</think>\n\nK7-42-QX-3"},"finish_reason":"stop"}]})",
     Grade::right, ""},
    {"the answer in the reasoning alone",
     R"({"choices":[{"message":{"role":"assistant","reasoning_content":"The code is K7-42-QX-3.","content":""},"finish_reason":"stop"}]})",
     Grade::no_answer, "empty: the answer stands in the reasoning alone"},
    {"reasoning that the limit ended",
     R"({"choices":[{"message":{"role":"assistant","reasoning_content":"The code is K7-42-QX-3, but","content":null},"finish_reason":"length"}]})",
     Grade::no_answer, "length limit inside reasoning"},
    {"the same, left in the content",
     R"({"choices":[{"message":{"role":"assistant","content":"<think>The code is K7-42-QX-3, but"},"finish_reason":"length"}]})",
     Grade::no_answer, "length limit inside reasoning"},
    {"an answer that the limit cut",
     R"({"choices":[{"message":{"role":"assistant","content":"The code is K7-42"},"finish_reason":"length"}]})",
     Grade::no_answer, "length limit"},
    {"an answer that was whole before the limit",
     R"({"choices":[{"message":{"role":"assistant","content":"K7-42-QX-3. I can also tell you the"},"finish_reason":"length"}]})",
     Grade::right, ""},
    {"chatter up to the limit",
     R"({"choices":[{"message":{"role":"assistant","content":"Thank you for asking about the code of the"},"finish_reason":"length"}]})",
     Grade::no_answer, "length limit"},
    {"nothing", R"({"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"stop"}]})",
     Grade::no_answer, "empty"},
    {"another answer", R"({"choices":[{"message":{"role":"assistant","content":"AB12-4"},"finish_reason":"stop"}]})",
     Grade::wrong, "another planted fact (turn 5)"},
    {"an answer without a code",
     R"({"choices":[{"message":{"role":"assistant","content":"It is a bird of prey."},"finish_reason":"stop"}]})",
     Grade::wrong, "no code"},
    {"a refusal in a field of its own",
     R"({"choices":[{"message":{"role":"assistant","content":null,"refusal":"I can't help with codes."},"finish_reason":"stop"}]})",
     Grade::refused, "refusal"},
    {"a refusal in words",
     R"({"choices":[{"message":{"role":"assistant","content":"I\u2019m unable to share this."},"finish_reason":"stop"}]})",
     Grade::refused, "refusal"},
    {"a filter", R"({"choices":[{"message":{"role":"assistant","content":"K7"},"finish_reason":"content_filter"}]})",
     Grade::refused, "content filter"},
    {"a call of the tool that was asked for",
     R"({"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"check","arguments":"{\"code\": \"K7-42-QX-3\"}"}}]},"finish_reason":"tool_calls"}]})",
     Grade::right, "", "check"},
    {"its arguments as an object, after reasoning",
     R"({"choices":[{"message":{"role":"assistant","reasoning_content":"AB12-4?","content":"","tool_calls":[{"function":{"name":"check","arguments":{"code":"K7-42-QX-3"}}}]},"finish_reason":"tool_calls"}]})",
     Grade::right, "", "check"},
    {"a call of another tool",
     R"({"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"search","arguments":"{\"query\": \"K7-42-QX-3\"}"}}]},"finish_reason":"tool_calls"}]})",
     Grade::no_answer, "a tool call instead of an answer", "check"},
    {"a call with a wrong code",
     R"({"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"check","arguments":"{\"code\": \"K7-42-QY-3\"}"}}]},"finish_reason":"tool_calls"}]})",
     Grade::wrong, "one character off", "check"},
    {"a call without a code",
     R"({"choices":[{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"list","arguments":"{}"}}]},"finish_reason":"tool_calls"}]})",
     Grade::no_answer, "a tool call instead of an answer"},
};

TEST(GradeReplies, AsServersSendThem) {
  for (const Recorded& r : kRecorded) {
    const Reply reply = parse_reply(200, r.body, true);
    ASSERT_EQ(reply.kind, Reply::Kind::answered) << r.what;
    const Graded g = grade_reply(reply, asked(r.tool));
    EXPECT_EQ(grade_name(g.grade), grade_name(r.grade)) << r.what << ": " << g.detail;
    EXPECT_EQ(g.detail, r.detail) << r.what;
  }
}

// Answers with bodies in a row, and keeps what it was asked.
class RecordedWorld : public World {
 public:
  std::deque<std::pair<int, std::string>> replies;
  std::vector<std::string> bodies;
  RequestSpec request;

  tl::expected<double, LaunchFailure> launch(const Variant&, std::int64_t) override { return 0.0; }
  void turn(const Variant&) override {}
  Reply ask(const Ask& ask, double) override {
    bodies.push_back(request_body(ask, "m", request, ""));
    expected = ask.expected;
    auto [status, body] = replies.front();
    replies.pop_front();
    if (const std::size_t at = body.find("CODE"); at != std::string::npos) body.replace(at, 4, expected);
    return parse_reply(status, body, true);
  }
  bool alive(std::string&) override { return true; }
  Result<void> stop() override { return {}; }
  double now_s() override { return 0; }
  std::string expected;
};

constexpr const char* kStillThinking =
    R"({"choices":[{"message":{"content":"<think>well"},"finish_reason":"length"}]})";
constexpr const char* kAnswered = R"({"choices":[{"message":{"content":"CODE"},"finish_reason":"stop"}]})";

TrialRecord short_trial(RecordedWorld& world) {
  TrialExtras extras;
  extras.request = world.request;
  return run_trial(world, {"short", 1}, Wording::plain, {}, 1e9, extras);
}

TEST(GradeReplies, ALimitInsideReasoningIsAskedAgainOnceAndBothAreRecorded) {
  RecordedWorld world;
  world.request.thinking_tokens = 100;
  world.replies = {{200, kStillThinking}, {200, kAnswered}};
  const TrialRecord t = short_trial(world);
  EXPECT_EQ(t.grade, Grade::right);
  ASSERT_EQ(t.steps.size(), 2u);
  EXPECT_TRUE(t.steps[0].superseded);
  EXPECT_EQ(t.steps[0].grade, Grade::no_answer);
  EXPECT_EQ(t.steps[1].room, "thinking budget doubled");
  EXPECT_NE(world.bodies[0].find("\"max_tokens\":124"), std::string::npos) << world.bodies[0];
  EXPECT_NE(world.bodies[1].find("\"max_tokens\":224"), std::string::npos) << world.bodies[1];
  // Both answer the same prompt, and the record is one of this item.
  EXPECT_EQ(t.steps[0].prompt_hash, t.steps[1].prompt_hash);
  History history;
  history.launches.push_back({.id = 1, .label = "x", .variant = {}, .message = {}, .trials = {t}});
  EXPECT_EQ(damage_of_trials(history, {}), std::nullopt);
}

TEST(GradeReplies, WithoutABudgetThinkingIsTurnedOff) {
  RecordedWorld world;
  world.replies = {{200, kStillThinking}, {200, kStillThinking}};
  const TrialRecord t = short_trial(world);
  EXPECT_EQ(t.grade, Grade::no_answer);
  EXPECT_EQ(t.steps.back().room, "thinking off");
  EXPECT_NE(world.bodies[1].find("\"enable_thinking\":false"), std::string::npos);
  EXPECT_EQ(world.bodies.size(), 2u) << "asked again once, not more often";
}

TEST(GradeReplies, AServerThatRefusesTheChangeLeavesTheFirstAnswer) {
  RecordedWorld world;
  world.replies = {{200, kStillThinking}, {400, R"({"error":{"message":"unknown field"}})"}};
  const TrialRecord t = short_trial(world);
  EXPECT_EQ(t.grade, Grade::no_answer);
  EXPECT_EQ(t.steps.size(), 1u);
  EXPECT_FALSE(t.steps[0].superseded);
}

TEST(GradeReplies, ACodeOfAnotherRequestIsRecognised) {
  KnownCodes codes;
  TrialExtras extras;
  extras.codes = &codes;
  RecordedWorld world;
  world.replies = {{200, kAnswered}};
  run_trial(world, {"short", 1}, Wording::plain, {}, 1e9, extras);
  const std::string leaked = world.expected;
  world.replies = {{200, R"({"choices":[{"message":{"content":")" + leaked + R"("},"finish_reason":"stop"}]})"}};
  const TrialRecord t = run_trial(world, {"short", 2}, Wording::plain, {}, 1e9, extras);
  EXPECT_EQ(t.grade, Grade::wrong);
  EXPECT_EQ(t.steps[0].detail, "another request's code");
}

}  // namespace
}  // namespace plumb::investigator
