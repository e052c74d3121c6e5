#include "runtime/runtime.h"

#include <climits>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "runtime/solo.h"

namespace plumb {
namespace {

// Sanitizers make a world thirty times slower; they look for other things than bits.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kWorlds = 3;
constexpr int kLeastHits = 3;
#else
constexpr std::uint64_t kWorlds = 12;
constexpr int kLeastHits = 20;
#endif

class WaitingSink final : public TokenSink {
 public:
  void on_prompt_scores(std::vector<TokenScore> scores) override { reply_.prompt = std::move(scores); }
  void on_token(TokenScore token) override {
    const std::lock_guard lock(mutex_);
    reply_.tokens.push_back(std::move(token));
    changed_.notify_all();
  }
  void on_finish(Finish reason, Usage usage) override {
    const std::lock_guard lock(mutex_);
    reply_.reason = reason;
    reply_.usage = usage;
    done_ = true;
    changed_.notify_all();
  }
  Reply wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return reply_;
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ || reply_.tokens.size() >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Reply reply_;
  bool done_ = false;
};

std::shared_ptr<const Model> tiny_model() {
  static const auto model = [] {
    auto loaded = load_model(std::filesystem::path(PLUMB_SOURCE_DIR) / "tests/golden/tiny-random-a");
    if (!loaded) ADD_FAILURE() << loaded.error().message;
    return std::make_shared<const Model>(std::move(*loaded));
  }();
  return model;
}

std::unique_ptr<Generator> tiny_runtime(RuntimeOptions options = {}) {
  if (options.max_context_tokens == 0) options.max_context_tokens = 1024;
  auto runtime = make_generator(tiny_model(), std::make_shared<InlineExecutor>(), options);
  if (!runtime) ADD_FAILURE() << runtime.error().message;
  return std::move(*runtime);
}

std::shared_ptr<WaitingSink> send(Generator& generator, const GenerateRequest& request, std::uint64_t* id = nullptr) {
  auto sink = std::make_shared<WaitingSink>();
  const auto accepted = generator.submit(request, sink);
  if (!accepted) ADD_FAILURE() << accepted.error().message;
  if (id != nullptr && accepted) *id = *accepted;
  return sink;
}

std::vector<std::int32_t> random_prompt(Rng& rng, int count) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < count; ++i) prompt.push_back(static_cast<std::int32_t>(rng.below(256)));
  return prompt;
}

// What a request gives on its own, cold.
Reply cold_solo(const GenerateRequest& request) {
  static Engine engine = solo_engine(tiny_model(), {});
  return run_solo(engine, request);
}

void expect_same(const Reply& got, const Reply& want, const std::string& what) {
  ASSERT_EQ(got.tokens.size(), want.tokens.size()) << what;
  for (std::size_t i = 0; i < got.tokens.size(); ++i)
    ASSERT_TRUE(got.tokens[i] == want.tokens[i])
        << what << ", token " << i << ": " << got.tokens[i].id << " (" << got.tokens[i].logprob << ") instead of "
        << want.tokens[i].id << " (" << want.tokens[i].logprob << ")";
  EXPECT_EQ(got.prompt.size(), want.prompt.size()) << what;
  EXPECT_TRUE(got.prompt == want.prompt) << what;
  EXPECT_EQ(got.reason, want.reason) << what;
}

void set_request_switches(Settings& settings, Rng& rng) {
  for (const Switch& entry : kSwitches) {
    if (entry.scope == Scope::request) CHECK(settings.set(entry.name, rng.below(2) == 0 ? "off" : "on"));
  }
}

// Random worlds: prompts that fork from one another at any offset, any switch settings and chunk size, sent one after
// another or at once. Every reply equals that of a cold solo run, to the bit.
TEST(Runtime, CrowdsChunksAndHitsChangeNoBit) {
  int hits = 0;
  for (std::uint64_t world = 0; world < kWorlds; ++world) {
    Rng rng{world};
    const auto runtime = tiny_runtime({.max_context_tokens = 700,
                                       .chunk_tokens = rng.below(2) == 0 ? 128 : rng.between(1, 200),
                                       .max_running = static_cast<int>(rng.between(1, 5)),
                                       .pool_tokens = rng.between(700, 3000)});
    std::vector<std::vector<std::int32_t>> seen{random_prompt(rng, 300)};
    Settings usual;  // most requests of a world agree, or none would find another's prefix
    set_request_switches(usual, rng);
    ASSERT_TRUE(usual.set("prefix_cache", "on"));
    std::vector<std::pair<GenerateRequest, std::shared_ptr<WaitingSink>>> sent;
    for (int i = 0; i < 10; ++i) {
      GenerateRequest request;
      const auto& base = seen[rng.below(seen.size())];
      const auto base_size = static_cast<std::int64_t>(base.size());
      request.prompt.assign(base.begin(), base.begin() + (rng.below(2) == 0 ? base_size : rng.between(1, base_size)));
      const auto fresh = random_prompt(rng, static_cast<int>(rng.below(140)));
      request.prompt.insert(request.prompt.end(), fresh.begin(), fresh.end());
      if (request.prompt.size() > 600) request.prompt.resize(600);
      request.max_tokens = rng.between(0, 8);
      request.sampling = {.temperature = rng.below(2) == 0 ? 0.0 : 0.9, .seed = rng.next()};
      request.top_logprobs = 4;
      request.prompt_logprobs = rng.below(5) == 0;
      request.settings = usual;
      if (rng.below(4) == 0) set_request_switches(request.settings, rng);
      sent.emplace_back(request, send(*runtime, request));
      seen.push_back(request.prompt);
      if (rng.below(3) == 0) continue;
      for (const TokenScore& token : sent.back().second->wait().tokens) seen.back().push_back(token.id);
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const Reply got = sent[i].second->wait();
      hits += got.usage.cached_tokens > 0;
      expect_same(got, cold_solo(sent[i].first), fmt::format("world {} request {}", world, i));
    }
  }
  EXPECT_GE(hits, kLeastHits) << "the worlds must exercise the prefix cache";
}

TEST(Runtime, AFollowUpHitsAllButTheLastToken) {
  Rng rng{1};
  const auto runtime = tiny_runtime();
  GenerateRequest request{.prompt = random_prompt(rng, 333), .max_tokens = 5, .settings = Settings::defaults()};
  request.sampling.temperature = 0;
  const Reply first = send(*runtime, request)->wait();
  for (const TokenScore& token : first.tokens) request.prompt.push_back(token.id);
  request.prompt.push_back(3);
  const Reply second = send(*runtime, request)->wait();
  EXPECT_EQ(first.usage.cached_tokens, 0);
  EXPECT_EQ(second.usage.cached_tokens, 333 + 4);  // the fifth token was drawn but never computed
  expect_same(second, cold_solo(request), "second");
}

// Every page border becomes a stored prefix, however the passes were cut: in one piece, or in chunks that end
// elsewhere.
TEST(Runtime, PageBordersInsideAPassAreStored) {
  for (const std::int64_t chunk : {0, 100, 300}) {
    Rng rng{13};
    const auto runtime = tiny_runtime({.chunk_tokens = std::max<std::int64_t>(1, chunk)});
    GenerateRequest request{.prompt = random_prompt(rng, 700), .max_tokens = 2, .settings = Settings::defaults()};
    if (chunk == 0) {
      ASSERT_TRUE(request.settings.set("prefill.chunked", "off"));
    }
    request.sampling.temperature = 0;
    send(*runtime, request)->wait();
    for (const std::size_t shared : {640u, 639u, 400u, 128u, 127u}) {
      GenerateRequest fork = request;
      fork.prompt.resize(shared);
      fork.prompt.push_back(request.prompt[shared] == 3 ? 4 : 3);
      const Reply reply = send(*runtime, fork)->wait();
      EXPECT_EQ(reply.usage.cached_tokens, static_cast<std::int64_t>(shared / kPageTokens * kPageTokens));
      expect_same(reply, cold_solo(fork), fmt::format("chunk {}, {} shared", chunk, shared));
    }
  }
}

TEST(Runtime, GeneratedAndScoredLogProbabilitiesAgreeToTheBit) {
  Rng rng{2};
  const auto runtime = tiny_runtime();
  GenerateRequest request{.prompt = random_prompt(rng, 150), .max_tokens = 20, .top_logprobs = 3};
  request.sampling.temperature = 0;
  const Reply generated = send(*runtime, request)->wait();
  ASSERT_EQ(generated.tokens.size(), 20u);
  for (const TokenScore& token : generated.tokens) request.prompt.push_back(token.id);
  request.max_tokens = 0;
  request.prompt_logprobs = true;
  const Reply scored = send(*runtime, request)->wait();
  EXPECT_TRUE(scored.tokens.empty());
  EXPECT_EQ(scored.reason, Finish::length);
  ASSERT_EQ(scored.prompt.size(), 169u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_TRUE(scored.prompt[149 + i] == generated.tokens[i]) << i;
}

// A bias of 100 decides every draw, and log-probabilities stay those of the raw logits: what the forced tokens get is
// what scoring the same tokens as a prompt gives.
TEST(Runtime, BiasAndPenaltiesDecideTheDrawAndLeaveLogProbabilitiesRaw) {
  Rng rng{12};
  const auto runtime = tiny_runtime();
  GenerateRequest request{.prompt = random_prompt(rng, 40), .max_tokens = 6, .top_logprobs = 2};
  request.sampling = {.temperature = 0, .logit_bias = {{17, 100.0f}}};
  Reply reply = send(*runtime, request)->wait();
  for (const TokenScore& token : reply.tokens) EXPECT_EQ(token.id, 17);

  // Two ids far above the rest, a little apart: the frequency penalty makes them take turns.
  request.sampling = {.temperature = 0, .frequency_penalty = 2, .logit_bias = {{17, 100.0f}, {18, 100.0f}}};
  reply = send(*runtime, request)->wait();
  std::set<std::int32_t> drawn;
  for (const TokenScore& token : reply.tokens) drawn.insert(token.id);
  EXPECT_EQ(drawn, (std::set<std::int32_t>{17, 18}));

  GenerateRequest scored = request;
  for (const TokenScore& token : reply.tokens) scored.prompt.push_back(token.id);
  scored.sampling = {};
  scored.max_tokens = 0;
  scored.prompt_logprobs = true;
  const Reply scores = send(*runtime, scored)->wait();
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(scores.prompt[39 + i] == reply.tokens[i]) << i;
}

TEST(Runtime, StopIdsEndTheReplyAndAreReported) {
  Rng rng{3};
  const auto runtime = tiny_runtime();
  GenerateRequest request{.prompt = random_prompt(rng, 20), .max_tokens = 30};
  request.sampling = {.temperature = 2.0, .seed = 4};
  const Reply free_run = send(*runtime, request)->wait();
  request.stop_ids = {free_run.tokens[7].id};
  const Reply stopped = send(*runtime, request)->wait();
  EXPECT_EQ(stopped.reason, Finish::stop);
  EXPECT_EQ(stopped.tokens.back().id, free_run.tokens[7].id);
  EXPECT_LE(stopped.tokens.size(), 8u);
}

TEST(Runtime, WhatItCannotServeIsRefusedWithTheNumbers) {
  const auto runtime = tiny_runtime({.max_context_tokens = 100});
  const auto refused = [&](GenerateRequest request) {
    const auto answer = runtime->submit(std::move(request), std::make_shared<WaitingSink>());
    EXPECT_FALSE(answer);
    return answer ? Rejection{} : answer.error();
  };
  Rejection rejection = refused({.prompt = std::vector<std::int32_t>(90, 5), .max_tokens = 11});
  EXPECT_EQ(rejection.kind, Rejection::Kind::too_long);
  EXPECT_NE(rejection.message.find("90 prompt tokens"), std::string::npos);
  EXPECT_EQ(refused({.prompt = {}, .max_tokens = 1}).kind, Rejection::Kind::invalid);
  EXPECT_EQ(refused({.prompt = {256}, .max_tokens = 1}).kind, Rejection::Kind::invalid);
  EXPECT_EQ(refused({.prompt = {-1}, .max_tokens = 1}).kind, Rejection::Kind::invalid);
  EXPECT_EQ(refused({.prompt = {1}, .max_tokens = -1}).kind, Rejection::Kind::invalid);
  EXPECT_EQ(refused({.prompt = {1}, .max_tokens = INT64_MAX}).kind, Rejection::Kind::too_long);
  const auto with = [&](const Sampling& sampling) {
    const Rejection rejected = refused({.prompt = {1}, .max_tokens = 1, .sampling = sampling});
    EXPECT_EQ(rejected.kind, Rejection::Kind::invalid);
    return rejected.message;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(with({.temperature = -1}).find("temperature"), std::string::npos);
  EXPECT_NE(with({.top_p = kNan}).find("top_p"), std::string::npos);
  EXPECT_NE(with({.presence_penalty = 2.5}).find("-2 to 2"), std::string::npos);
  EXPECT_NE(with({.frequency_penalty = kNan}).find("-2 to 2"), std::string::npos);
  EXPECT_NE(with({.repetition_penalty = 0}).find("above 0"), std::string::npos);
  EXPECT_NE(with({.logit_bias = {{256, 1.0f}}}).find("vocabulary"), std::string::npos);
  EXPECT_NE(with({.logit_bias = {{1, 101.0f}}}).find("-100 to 100"), std::string::npos);
  GenerateRequest other_launch{.prompt = {1}, .max_tokens = 1};
  ASSERT_TRUE(other_launch.settings.set("kv.fp8", "on"));
  EXPECT_EQ(refused(other_launch).kind, Rejection::Kind::invalid);
  EXPECT_EQ(runtime->stats().rejected, 14u);
}

TEST(Runtime, APlanThatDoesNotFitTheMachineIsRefusedWithTheNumbers) {
  const auto refused = [](const RuntimeOptions& options) {
    const auto runtime = make_generator(tiny_model(), std::make_shared<InlineExecutor>(), options);
    EXPECT_FALSE(runtime);
    return runtime ? std::string() : runtime.error().message;
  };
  for (const RuntimeOptions& options :
       {RuntimeOptions{.pool_tokens = INT64_MAX}, RuntimeOptions{.pool_tokens = std::int64_t{1} << 50},
        RuntimeOptions{.max_running = INT_MAX}})
    EXPECT_NE(refused(options).find("lower --pool-tokens"), std::string::npos) << refused(options);
  EXPECT_NE(refused({.max_context_tokens = 8193}).find("1 to 8192"), std::string::npos);
  EXPECT_NE(refused({.chunk_tokens = 0}), "");
  EXPECT_NE(refused({.chunk_tokens = -1}), "");
  EXPECT_NE(refused({.pool_tokens = 100}), "");
  EXPECT_EQ(tiny_runtime({.chunk_tokens = INT64_MAX})->max_context_tokens(), 1024);
}

TEST(Runtime, LogitsThatAreNotFiniteEndTheReplyAndAreNotKept) {
  auto broken = std::make_shared<Model>(*tiny_model());
  broken->weights.norm.mutable_view()(0) = std::numeric_limits<float>::infinity();
  auto made = make_generator(broken, std::make_shared<InlineExecutor>(), {});
  ASSERT_TRUE(made);
  Generator& runtime = **made;
  const GenerateRequest request{
      .prompt = std::vector<std::int32_t>(200, 5), .max_tokens = 4, .settings = Settings::defaults()};
  for (int i = 0; i < 2; ++i) {
    const Reply reply = send(runtime, request)->wait();
    EXPECT_EQ(reply.reason, Finish::failed);
    EXPECT_TRUE(reply.tokens.empty());
    EXPECT_EQ(reply.usage.cached_tokens, 0);
  }
  EXPECT_EQ(runtime.stats().failed, 2u);
}

TEST(Runtime, AFullQueueRefusesAndAcceptedRequestsFinish) {
  Rng rng{6};
  const auto runtime =
      tiny_runtime({.max_context_tokens = 400, .max_running = 1, .max_waiting = 3, .pool_tokens = 400});
  GenerateRequest request{.prompt = random_prompt(rng, 200), .max_tokens = 100};
  std::vector<std::shared_ptr<WaitingSink>> accepted;
  int overloaded = 0;
  for (int i = 0; i < 12; ++i) {
    auto sink = std::make_shared<WaitingSink>();
    if (const auto answer = runtime->submit(request, sink))
      accepted.push_back(sink);
    else
      overloaded += answer.error().kind == Rejection::Kind::overloaded;
  }
  EXPECT_GE(overloaded, 1);
  EXPECT_EQ(accepted.size() + static_cast<std::size_t>(overloaded), 12u);
  for (const auto& sink : accepted) EXPECT_EQ(sink->wait().tokens.size(), 100u);
}

// One client that waits for each reply finds the queue empty every time.
TEST(Runtime, ACallerWhoWaitsForHisRepliesIsNeverRefused) {
  const auto runtime = tiny_runtime({.max_context_tokens = 400, .max_running = 1, .max_waiting = 1});
  for (int i = 0; i < 300; ++i) {
    auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(runtime->submit({.prompt = {1, 2, 3}, .max_tokens = 1}, sink)) << i;
    EXPECT_EQ(sink->wait().tokens.size(), 1u);
  }
}

TEST(Runtime, CancellingFreesEveryPage) {
  Rng rng{7};
  const auto runtime = tiny_runtime({.max_context_tokens = 900, .max_running = 3});
  std::vector<std::pair<std::uint64_t, std::shared_ptr<WaitingSink>>> sent;
  for (int i = 0; i < 8; ++i) {
    std::uint64_t id = 0;
    const GenerateRequest request{.prompt = random_prompt(rng, 60 + 20 * i), .max_tokens = 500};  // settings: all off
    auto sink = send(*runtime, request, &id);
    sent.emplace_back(id, sink);
  }
  sent[0].second->wait_for_tokens(3);
  for (const auto& [id, sink] : sent) runtime->cancel(id);
  runtime->cancel(sent[0].first);
  runtime->cancel(12345);
  for (const auto& [id, sink] : sent) EXPECT_EQ(sink->wait().reason, Finish::cancelled);
  const Reply after = send(*runtime, {.prompt = {1, 2, 3}, .max_tokens = 1})->wait();
  EXPECT_EQ(after.reason, Finish::length);
  GeneratorStats stats = runtime->stats();
  for (int i = 0; i < 1000 && stats.pages_used != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stats = runtime->stats();
  }
  EXPECT_EQ(stats.pages_used, 0);
  EXPECT_EQ(stats.cancelled, 8u);
}

// Clients on threads of their own submit, cancel and ask for statistics while passes run on two threads. What was not
// cancelled is right; at the end nothing is held.
TEST(Runtime, ManyClientsAtOnceDoNotDisturbEachOther) {
  auto made = make_generator(tiny_model(), std::make_shared<ThreadPool>(2),
                             {.max_context_tokens = 500, .max_running = 4, .pool_tokens = 700});
  ASSERT_TRUE(made);
  Generator& runtime = **made;
  struct Sent {
    GenerateRequest request;
    std::shared_ptr<WaitingSink> sink;
  };
  std::vector<std::vector<Sent>> sent(3);
  std::vector<std::thread> clients;
  for (std::uint64_t client = 0; client < sent.size(); ++client)
    clients.emplace_back([&runtime, &mine = sent[client], client] {
      Rng rng{client};
      for (int i = 0; i < 5; ++i) {
        GenerateRequest request{.prompt = random_prompt(rng, static_cast<int>(rng.between(1, 200))),
                                .max_tokens = rng.between(1, 60),
                                .sampling = {.seed = rng.next()},
                                .top_logprobs = 1,
                                .settings = Settings::defaults()};
        auto sink = std::make_shared<WaitingSink>();
        const auto id = runtime.submit(request, sink);
        ASSERT_TRUE(id);
        mine.push_back({request, sink});
        if (rng.below(3) == 0) {
          sink->wait_for_tokens(1);
          runtime.cancel(*id);
        }
        EXPECT_LE(runtime.stats().running, 4);
        if (rng.below(2) == 0) sink->wait();
      }
    });
  for (std::thread& client : clients) client.join();
  for (const auto& mine : sent)
    for (const Sent& each : mine) {
      const Reply got = each.sink->wait();
      if (got.reason == Finish::cancelled) continue;
      expect_same(got, cold_solo(each.request), "a client's reply");
    }
}

TEST(Runtime, DestructionCancelsWhatIsUnderWay) {
  Rng rng{8};
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  {
    const auto runtime = tiny_runtime({.max_running = 2});
    for (int i = 0; i < 5; ++i) sinks.push_back(send(*runtime, {.prompt = random_prompt(rng, 100), .max_tokens = 800}));
  }
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().reason, Finish::cancelled);
}

}  // namespace
}  // namespace plumb
