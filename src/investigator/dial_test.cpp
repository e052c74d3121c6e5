#include "investigator/dial.h"

#include <cctype>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "investigator/trial.h"

namespace plumb::investigator {
namespace {

// A tokenizer like those of foreign servers: a word with the space before it, up to three digits, else one character.
std::vector<std::size_t> token_ends(const std::string& text) {
  std::vector<std::size_t> ends;
  const auto is = [&](std::size_t i, auto kind) {
    return i < text.size() && kind(static_cast<unsigned char>(text[i])) != 0;
  };
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + (text[i] == ' ' && is(i + 1, isalpha) ? 1u : 0u);
    if (is(end, isalpha)) {
      // Words are whole, codes in capitals go in pairs.
      const std::size_t most =
          isupper(static_cast<unsigned char>(text[end])) != 0 && is(end + 1, isupper) ? end + 2 : text.size();
      while (end < most && is(end, isalpha)) ++end;
    } else if (is(end, isdigit)) {
      for (int k = 0; k < 3 && is(end, isdigit); ++k) ++end;
    } else {
      ++end;
    }
    ends.push_back(end);
    i = end;
  }
  return ends;
}

// A chat server with that tokenizer, whose template's split into head and tail nobody tells.
class ChatServer : public World {
 public:
  int head = 9;
  int tail = 5;
  int chunk = 0;  // above 0: forgets a value that lies across a multiple of it
  bool says_usage = true;
  bool spells = false;  // one token a character
  int jitter_at = -1;   // the request whose count is one too many
  int hangs_at = -1;
  bool refuses_to_count = false;
  std::vector<Ask> counted, answered;
  std::set<std::string> starts;  // of everything sent

  int tokens_of(const std::string& text) const {
    return static_cast<int>(spells ? text.size() : token_ends(text).size());
  }

  void turn(const Variant&) override {}
  tl::expected<double, LaunchFailure> launch(const Variant&, std::int64_t) override { return 0.0; }
  Reply ask(const Ask& ask, double) override {
    Reply r;
    const int number = static_cast<int>(counted.size() + answered.size());
    (ask.max_tokens == 1 ? counted : answered).push_back(ask);
    if (number == hangs_at) return r;
    r.status = 200;
    r.kind = Reply::Kind::answered;
    r.finish_reason = "stop";
    if (refuses_to_count && ask.max_tokens == 1) {
      r.kind = Reply::Kind::rejected;
      r.status = 400;
      r.text = "HTTP 400: too short";
      return r;
    }
    int tokens = head;
    int begin = -1;
    int end = -1;
    for (const Message& m : ask.messages) {
      const std::size_t at = ask.expected.empty() ? std::string::npos : m.content.find(ask.expected);
      if (at != std::string::npos && begin < 0) {
        begin = tokens + tokens_of(m.content.substr(0, at - 1));
        end = tokens + tokens_of(m.content.substr(0, at + ask.expected.size()));
      }
      tokens += tokens_of(m.content) + tail;
      if (&m != &ask.messages.back()) tokens += 2;  // the next message's beginning
    }
    if (says_usage) r.prompt_tokens = tokens + (number == jitter_at ? 1 : 0);
    r.cached_tokens = 0;
    const int next = chunk > 0 ? (begin / chunk + 1) * chunk : 0;
    const bool straddles = chunk > 0 && next > begin && next < end;
    r.text = straddles ? "A1-11-AA-1" : ask.expected;
    return r;
  }
  bool alive(std::string&) override { return true; }
  Result<void> stop() override { return {}; }
  double now_s() override { return 0; }
};

const Shape kShape{.window = 64, .chunk = 256, .page = 128, .index_topk = 64, .max_len = 0};

TrialRecord try_boundary(ChatServer& server, Dialler& dialler, std::uint64_t seed) {
  return run_trial(server, {"boundary", seed}, Wording::plain, kShape, 1e9, {&dialler});
}

TEST(Dial, ABoundaryLiesInsideTheValueWhateverTheTemplateHides) {
  for (int overhead : {2, 14, 30})
    for (int tail = 1; tail < overhead; tail += overhead > 20 ? 5 : 1)
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        ChatServer server;
        server.head = overhead - tail;
        server.tail = tail;
        server.chunk = kShape.chunk;
        Dialler dialler(kShape, 24);
        const TrialRecord t = try_boundary(server, dialler, seed);
        // The server garbles only a value that is cut in two, so a failure shows that one prompt cut it.
        EXPECT_EQ(t.grade, Grade::wrong) << overhead << " " << tail << " " << seed;
        EXPECT_EQ(t.steps[0].undialled, "");
        EXPECT_EQ(t.steps[0].dial_requests, kGaugeRequests + kDialRequests);
        EXPECT_GT(t.steps[0].dial_tokens, 0);
        EXPECT_EQ(static_cast<int>(server.counted.size()), kGaugeRequests + kDialRequests);
        EXPECT_LE(static_cast<int>(t.steps.size()), kMostRungs);
        EXPECT_EQ(why_lengths_differ({t}, "boundary"), std::nullopt);
        for (const StepRecord& s : t.steps) EXPECT_EQ(s.prompt_tokens, s.expected_tokens);
      }
}

TEST(Dial, NoPromptBeginsLikeAnother) {
  ChatServer server;
  Dialler dialler(kShape, 24);
  for (std::uint64_t seed = 0; seed < 5; ++seed) try_boundary(server, dialler, seed);
  std::set<std::string> starts;
  constexpr std::size_t kCharacters = 40;  // some ten tokens: less than any page
  for (const auto* list : {&server.counted, &server.answered})
    for (const Ask& ask : *list) starts.insert(ask.messages.front().content.substr(0, kCharacters));
  // The gauge asks one and the same line at several lengths.
  EXPECT_EQ(starts.size(), server.counted.size() + server.answered.size() - (kGaugeRequests - 1));
}

TEST(Dial, ThePromptsOfEveryLaunchAreTheSame) {
  ChatServer server;
  Dialler dialler(kShape, 24);
  const TrialRecord first = try_boundary(server, dialler, 3);
  const TrialRecord again = try_boundary(server, dialler, 3);
  ASSERT_EQ(first.steps.size(), again.steps.size());
  EXPECT_EQ(again.steps[0].dial_requests, 0);
  for (std::size_t i = 0; i < first.steps.size(); ++i)
    EXPECT_EQ(first.steps[i].prompt_hash, again.steps[i].prompt_hash);
  // After an interruption the journal tells them.
  History history;
  history.launches.push_back({.id = 1, .label = "ground/reference/1", .variant = {}, .message = {}, .trials = {first}});
  Dialler resumed(kShape, 24);
  resumed.learn(history);
  const std::size_t before = server.counted.size();
  const TrialRecord later = try_boundary(server, resumed, 3);
  EXPECT_EQ(server.counted.size(), before);
  EXPECT_EQ(later.steps.back().prompt_hash, first.steps.back().prompt_hash);
  EXPECT_EQ(damage_of_trials(history, kShape), std::nullopt);
  history.launches[0].trials[0].steps[0].padding += 1;
  EXPECT_NE(damage_of_trials(history, kShape), std::nullopt);
}

std::string refusal(const std::function<void(ChatServer&)>& change, const Shape& shape = kShape) {
  ChatServer server;
  change(server);
  Dialler dialler(shape, 24);
  const TrialRecord t = run_trial(server, {"boundary", 1}, Wording::plain, shape, 1e9, {&dialler});
  EXPECT_EQ(t.steps.size(), 1u);
  EXPECT_EQ(t.steps[0].padding, 0);
  EXPECT_EQ(t.grade, Grade::right);  // asked all the same, without the claim
  const auto why = why_lengths_differ({t}, "boundary");
  EXPECT_TRUE(why && why->starts_with("boundary: partly")) << why.value_or("exact");
  EXPECT_LE(t.steps[0].dial_requests, kGaugeRequests + kDialRequests);
  return t.steps[0].undialled;
}

TEST(Dial, WhatCannotBeDialledIsSaidAndNeverApproximated) {
  EXPECT_NE(refusal([](ChatServer& s) { s.says_usage = false; }).find("usage.prompt_tokens"), std::string::npos);
  EXPECT_EQ(refusal([](ChatServer& s) { s.jitter_at = 3; }), "the server counts the same prompt as " +
                                                                 std::to_string(16 + 9 + 5 + 5) + " and as " +
                                                                 std::to_string(16 + 9 + 5 + 6) + " tokens");
  EXPECT_NE(refusal([](ChatServer& s) { s.jitter_at = 1; }).find("its tokenizer spells them"), std::string::npos);
  EXPECT_NE(refusal([](ChatServer& s) { s.spells = true; }).find("its tokenizer spells them"), std::string::npos);
  EXPECT_NE(refusal([](ChatServer& s) { s.head = 400; }).find("may follow a message"), std::string::npos);
  EXPECT_NE(refusal([](ChatServer& s) { s.refuses_to_count = true; }).find("HTTP 400"), std::string::npos);
  EXPECT_NE(refusal([](ChatServer& s) { s.hangs_at = 2; }).find("no reply"), std::string::npos);
  Shape small = kShape;
  small.max_len = 300;
  EXPECT_NE(refusal([](ChatServer&) {}, small).find("300 are the most"), std::string::npos);
}

TEST(Dial, ACountThatIsNotTheOneForetoldIsNotCovered) {
  ChatServer server;
  Dialler dialler(kShape, 24);
  server.jitter_at = kGaugeRequests + kDialRequests;  // the first rung
  const TrialRecord t = try_boundary(server, dialler, 2);
  const auto why = why_lengths_differ({t}, "boundary");
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("were foretold"), std::string::npos) << *why;
}

TEST(Dial, AServerThatGaveNoReplyIsGaugedAgain) {
  ChatServer server;
  server.hangs_at = 0;
  Dialler dialler(kShape, 24);
  EXPECT_NE(try_boundary(server, dialler, 1).steps[0].undialled, "");
  EXPECT_EQ(try_boundary(server, dialler, 1).steps[0].undialled, "");
}

TEST(Dial, WhatPlumbCountsItselfIsNotDialled) {
  EXPECT_FALSE(needs_dialling(make_item({"boundary", 1}, Wording::v4, kShape).asks));
  EXPECT_FALSE(needs_dialling(make_item({"short", 1}, Wording::plain, kShape).asks));
  EXPECT_TRUE(needs_dialling(make_item({"boundary", 1}, Wording::plain, kShape).asks));
}

}  // namespace
}  // namespace plumb::investigator
