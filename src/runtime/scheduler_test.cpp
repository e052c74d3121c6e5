#include "runtime/scheduler.h"

#include <set>

#include "engine/random_world.h"
#include "engine/test_model.h"
#include "runtime/recording_sink.h"

namespace plumb {
namespace {

Settings settings(bool on, std::initializer_list<std::string_view> others = {}) {
  Settings settings;
  for (const Switch& entry : kSwitches) {
    const bool other = std::ranges::count(others, entry.name) > 0;
    if (entry.scope == Scope::request) CHECK(settings.set(entry.name, on != other ? "on" : "off"));
  }
  return settings;
}

class SchedulerTest : public testing::Test {
 protected:
  void make(const RuntimeOptions& options, std::uint64_t seed = 1) {
    model_ = random_model(seed);
    auto made = Scheduler::make(model_, std::make_shared<InlineExecutor>(), options);
    ASSERT_TRUE(made) << made.error().message;
    scheduler_ = std::move(*made);
    solo_ = std::make_unique<Engine>(solo_engine(model_, options));
  }
  GenerateRequest request(std::int64_t prompt, std::int64_t max_tokens, const Settings& settings) {
    return {.prompt = random_ids(model_->config, prompt, rng_),
            .max_tokens = max_tokens,
            .sampling = {.seed = rng_.next()},
            .top_logprobs = 1,
            .settings = settings};
  }
  std::shared_ptr<RecordingSink> send(const GenerateRequest& request) {
    auto sink = std::make_shared<RecordingSink>();
    scheduler_->add(std::make_unique<Sequence>(++last_id_, request, sink));
    return sink;
  }
  void drain() {
    while (scheduler_->step()) continue;
  }
  void expect_solo(const RecordingSink& sink, const GenerateRequest& request) {
    ASSERT_TRUE(sink.finished);
    const Reply want = run_solo(*solo_, request);
    EXPECT_EQ(sink.reply.reason, want.reason);
    EXPECT_TRUE(sink.reply.tokens == want.tokens);
    EXPECT_TRUE(sink.reply.prompt == want.prompt);
  }
  GeneratorStats stats() const { return scheduler_->stats(); }

  Rng rng_{77};
  std::shared_ptr<Model> model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Engine> solo_;
  std::uint64_t last_id_ = 0;
};

// A follow-up may leave a stored prefix at any offset of a page, a group, or a window. It takes over what lies on the
// last border before, or the whole when it only goes on, and gives what a cold run gives.
TEST_F(SchedulerTest, AForkAtAnyOffsetGivesWhatAColdRunGives) {
  for (std::uint64_t seed = 1; seed <= (kSlowBuild ? 1 : 3); ++seed) {
    make({.max_context_tokens = 400, .chunk_tokens = 200, .pool_tokens = 60000}, seed);
    const GenerateRequest base = request(290, 1, settings(true));
    send(base);
    drain();
    for (std::size_t fork = 1; fork <= 290; fork += kSlowBuild ? 7 : seed == 1 ? 1 : 5) {
      SCOPED_TRACE(testing::Message() << "model " << seed << ", fork at " << fork);
      GenerateRequest follow_up = request(5, 2, settings(true));
      follow_up.prompt.front() = fork < 290 ? (base.prompt[fork] + 1) % 20 : 0;
      follow_up.prompt.insert(follow_up.prompt.begin(), base.prompt.begin(),
                              base.prompt.begin() + static_cast<std::ptrdiff_t>(fork));
      const auto sink = send(follow_up);
      drain();
      expect_solo(*sink, follow_up);
      const auto border = static_cast<std::int64_t>(fork / kPageTokens * kPageTokens);
      EXPECT_EQ(sink->reply.usage.cached_tokens, fork == 290 ? 290 : border);
      if (HasFailure()) return;
    }
    // The first that went on behind position 290 wrote into a copy of its page: the stored one is as it was.
    GenerateRequest again = request(9, 2, settings(true));
    again.prompt.insert(again.prompt.begin(), base.prompt.begin(), base.prompt.end());
    const auto sink = send(again);
    drain();
    EXPECT_EQ(sink->reply.usage.cached_tokens, 290);
    EXPECT_EQ(stats().digest_mismatches, 0u);
    expect_solo(*sink, again);
  }
}

// Requests that may become long start side by side, because pages are not set aside for what may never be generated.
// When the pool runs out the youngest is moved out; the oldest never waits; nobody's tokens change.
TEST_F(SchedulerTest, WhenPagesRunOutTheYoungestMovesOutAndComesBack) {
  for (const bool cached : {true, false}) {
    make({.max_context_tokens = 500, .max_running = 4, .pool_tokens = 500});
    std::vector<std::pair<GenerateRequest, std::shared_ptr<RecordingSink>>> sent;
    for (int i = 0; i < 4; ++i) {
      const GenerateRequest asked = request(60, 240, cached ? settings(true) : settings(true, {"prefix_cache"}));
      sent.emplace_back(asked, send(asked));
    }
    scheduler_->step();
    EXPECT_GE(stats().running, 2);
    std::int64_t passes = 1;
    while (!sent[0].second->finished) {
      ASSERT_TRUE(scheduler_->step());
      ++passes;
    }
    EXPECT_EQ(passes, 240);  // a pass for each of its tokens
    drain();
    for (const auto& [asked, sink] : sent) expect_solo(*sink, asked);
    // Each of them once: who moved out comes back when there is room to grow, not into the next one's way.
    EXPECT_EQ(stats().preemptions, 2u);
    EXPECT_EQ(stats().cancelled + stats().failed, 0u);
    scheduler_->clear_cache();
    EXPECT_EQ(stats().pages_used, 0);
    EXPECT_EQ(stats().window_pages_used, 0);
  }
}

// What the youngest had computed is taken up again when nobody needed its pages meanwhile: it needs a fourth page when
// the older one holds two of five, and resumes when that one has ended.
TEST_F(SchedulerTest, APreemptedSequenceResumesFromWhatWasStoredOfIt) {
  make({.max_context_tokens = 640, .pool_tokens = 640});
  const GenerateRequest older = request(100, 150, settings(true)), younger = request(250, 200, settings(true));
  const auto a = send(older), b = send(younger);
  drain();
  EXPECT_EQ(stats().preemptions, 1u);
  EXPECT_EQ(stats().prefix_hit_tokens, 384u);
  EXPECT_EQ(stats().recomputed_tokens, 0u);
  EXPECT_EQ(b->reply.usage.cached_tokens, 0);  // of the prompt, at its first start
  expect_solo(*a, older);
  expect_solo(*b, younger);
}

// Preempted in the middle of a scored prompt: scores already taken are kept, none is taken twice or left out.
TEST_F(SchedulerTest, AScoredPromptThatIsPreemptedMidwayIsScoredOnceAndWhole) {
  for (const bool cached : {true, false}) {
    make({.max_context_tokens = 640, .chunk_tokens = 1, .pool_tokens = 640});
    const Settings chosen = cached ? settings(true) : settings(true, {"prefix_cache"});
    const GenerateRequest older = request(10, 500, chosen);
    GenerateRequest younger = request(350, 3, chosen);
    younger.prompt_logprobs = true;
    const auto a = send(older), b = send(younger);
    while (stats().preemptions == 0) ASSERT_TRUE(scheduler_->step());
    EXPECT_TRUE(b->reply.prompt.empty());
    drain();
    expect_solo(*a, older);
    expect_solo(*b, younger);
    EXPECT_EQ(b->reply.prompt.size(), 349u);
  }
}

// Six sequences in four settings groups, prompts of many chunks: each is in one of any six consecutive passes.
TEST_F(SchedulerTest, NoRunningSequenceWaitsLongerThanThereAreSequences) {
  make({.max_context_tokens = 700, .chunk_tokens = 32, .max_running = 6, .pool_tokens = 6000});
  std::vector<std::pair<GenerateRequest, std::shared_ptr<RecordingSink>>> sent;
  const Settings groups[] = {settings(true), settings(true, {"indexer.fused"}), settings(true, {"attention.split_k"}),
                             settings(true, {"prefill.chunked"})};
  for (const std::int64_t prompt : {500, 20, 640, 300, 10, 400, 350, 30}) {
    const GenerateRequest asked = request(prompt, 40, groups[sent.size() % 4]);
    sent.emplace_back(asked, send(asked));
  }
  drain();
  EXPECT_LE(stats().longest_wait, 6);
  EXPECT_GE(stats().longest_wait, 4);  // else nobody had to wait for another group
  for (const auto& [asked, sink] : sent) expect_solo(*sink, asked);
}

// Prompts in chunks share passes with a sequence that decodes: it gets a token in every one of them.
TEST_F(SchedulerTest, DecodingGoesOnWhileAPromptIsComputed) {
  make({.max_context_tokens = 700, .chunk_tokens = 64, .pool_tokens = 3000});
  const auto decoding = send(request(10, 200, settings(true)));
  scheduler_->step();
  const auto prompt = send(request(640, 1, settings(true)));
  for (std::size_t tokens = 2; !prompt->finished; ++tokens) {
    ASSERT_TRUE(scheduler_->step());
    ASSERT_EQ(decoding->reply.tokens.size(), tokens);
  }
  EXPECT_EQ(stats().passes, 1u + 10u);
}

TEST_F(SchedulerTest, WithoutContinuousBatchingASequenceRunsAlone) {
  make({.max_context_tokens = 300, .max_running = 8, .pool_tokens = 3000});
  const Settings alone = settings(true, {"batch.continuous"});
  std::vector<std::pair<GenerateRequest, std::shared_ptr<RecordingSink>>> sent;
  for (const Settings& chosen : {settings(true), settings(true), alone, settings(true), alone, alone}) {
    const GenerateRequest asked = request(150, 10, chosen);
    sent.emplace_back(asked, send(asked));
  }
  std::set<std::int64_t> running;
  while (scheduler_->step()) {
    running.insert(stats().running);
    // The third waits for the first two, the fourth for the third.
    const RecordingSink &third = *sent[2].second, &fourth = *sent[3].second;
    if (!third.finished && !third.reply.tokens.empty()) {
      EXPECT_EQ(stats().running, 1);
    }
    EXPECT_TRUE(fourth.reply.tokens.empty() || third.finished);
  }
  EXPECT_EQ(running, (std::set<std::int64_t>{0, 1, 2}));
  for (const auto& [asked, sink] : sent) expect_solo(*sink, asked);
}

// One prompt pass, then 299 tokens: the plan of the first decode step is built, 298 times it is kept. Pages are
// appended to the kept plan's sequence where it crosses a border.
TEST_F(SchedulerTest, APlanIsKeptWhileTheSameSequencesDecodeAndOnlyThen) {
  make({.max_context_tokens = 600, .pool_tokens = 3000});
  const GenerateRequest first = request(50, 300, settings(true));
  const auto a = send(first);
  drain();
  EXPECT_EQ(stats().plans_built, 2u);
  EXPECT_EQ(stats().plans_reused, 298u);
  expect_solo(*a, first);

  const GenerateRequest second = request(50, 300, settings(true, {"decode.plan_reuse"}));
  const auto b = send(second);
  drain();
  EXPECT_EQ(stats().plans_built, 2u + 300u);
  EXPECT_EQ(stats().plans_reused, 298u);
  expect_solo(*b, second);

  // Whoever joins or leaves ends the plan.
  const auto c = send(request(20, 100, settings(true)));
  for (int i = 0; i < 10; ++i) scheduler_->step();
  const std::uint64_t built = stats().plans_built;
  send(request(20, 3, settings(true)));
  scheduler_->step();  // prompt beside a decode
  scheduler_->step();  // both decode: a new plan
  scheduler_->step();  // kept, and the newcomer ends
  EXPECT_EQ(stats().plans_built, built + 2);
  scheduler_->step();  // one decodes alone again
  scheduler_->step();
  EXPECT_EQ(stats().plans_built, built + 3);
  scheduler_->cancel(3);
  EXPECT_TRUE(c->finished);
  EXPECT_FALSE(scheduler_->step());
}

// A sequence may be cancelled after any number of passes: in the queue, in a prompt, while decoding, while moved out.
// The others do not notice, and every page comes back.
TEST_F(SchedulerTest, CancellingAtAnyMomentLeavesTheOthersAndThePagesAsTheyAre) {
  make({.max_context_tokens = 400, .chunk_tokens = 30, .max_running = 3, .pool_tokens = 400});
  std::vector<GenerateRequest> asked;
  for (int i = 0; i < 4; ++i) asked.push_back(request(90 + 10 * i, 200, settings(true)));
  std::vector<Reply> want;
  for (const GenerateRequest& each : asked) want.push_back(run_solo(*solo_, each));
  for (int passes = 0; passes < 500; passes += kSlowBuild ? 71 : 19) {
    SCOPED_TRACE(passes);
    const auto gone = static_cast<std::size_t>(passes) % asked.size();
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const GenerateRequest& each : asked) sinks.push_back(send(each));
    for (int i = 0; i < passes; ++i) scheduler_->step();
    const bool midway = !sinks[gone]->finished;
    scheduler_->cancel(last_id_ - asked.size() + 1 + gone);
    EXPECT_EQ(sinks[gone]->reply.reason, midway ? Finish::cancelled : Finish::length);
    drain();
    for (std::size_t i = 0; i < asked.size(); ++i)
      ASSERT_TRUE(i == gone || sinks[i]->reply.tokens == want[i].tokens) << i;
    scheduler_->clear_cache();
    ASSERT_EQ(stats().pages_used, 0);
    ASSERT_EQ(stats().window_pages_used, 0);
  }
  EXPECT_GE(stats().preemptions, 1u);
}

// What a client sees beside a token or behind a reply is of that moment: nobody waits who computes or has his reply.
TEST_F(SchedulerTest, GaugesAreOfTheMomentWhenASinkIsTold) {
  struct Looking final : TokenSink {
    explicit Looking(const Scheduler& of) : scheduler(of) {}
    void on_prompt_scores(std::vector<TokenScore>) override {}
    void on_token(TokenScore) override { tokens.push_back(scheduler.stats()); }
    void on_finish(Finish, Usage) override { end = scheduler.stats(); }
    const Scheduler& scheduler;
    std::vector<GeneratorStats> tokens;
    GeneratorStats end;
  };
  make({.max_context_tokens = 400, .max_running = 2});
  std::vector<std::shared_ptr<Looking>> sinks;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<Looking>(*scheduler_));
    scheduler_->add(std::make_unique<Sequence>(++last_id_, request(20, 3, settings(true)), sinks.back()));
  }
  drain();
  EXPECT_EQ(sinks[0]->tokens.front().waiting, 1);  // the third
  EXPECT_EQ(sinks[0]->tokens.front().running, 2);
  EXPECT_EQ(sinks[0]->end.running, 1);  // the second, told after it
  EXPECT_EQ(sinks[1]->end.running, 0);
  EXPECT_EQ(sinks[2]->tokens.front().waiting, 0);
  EXPECT_EQ(sinks[2]->end.running, 0);
  EXPECT_EQ(sinks[2]->end.pages_used, sinks[2]->end.pages_cached);
  const auto cancelled = std::make_shared<Looking>(*scheduler_);
  scheduler_->add(std::make_unique<Sequence>(++last_id_, request(20, 3, settings(true)), cancelled));
  scheduler_->cancel(last_id_);
  EXPECT_EQ(cancelled->end.waiting, 0);
}

}  // namespace
}  // namespace plumb
