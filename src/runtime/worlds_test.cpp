// Random worlds: crowds, chunks, hits, forks, evictions, preemptions, cancellations, threads and instruction sets
// change no bit of what a request gives, under every switch setting and on both backends. Each world is played step by
// step from its seed.
//
// The number of worlds is PLUMB_WORLDS, or a small one that suits every build; `ctest -L system` runs 2,000.

#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "engine/random_world.h"
#include "engine/test_model.h"
#include "runtime/memory_plan.h"
#include "runtime/recording_sink.h"
#include "runtime/scheduler.h"

namespace plumb {
namespace {

std::uint64_t world_count() {
  const char* asked = std::getenv("PLUMB_WORLDS");
  if (asked == nullptr) return kSlowBuild ? 8 : 60;
  std::uint64_t count = 0;
  const std::string_view text(asked);
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  CHECK(failed == std::errc{} && end == text.data() + text.size() && count > 0);
  return count;
}

// What the worlds did, so that a test can demand that they did it.
struct Deeds {
  std::uint64_t requests = 0, hits = 0, open_hits = 0, cancelled_midway = 0, scored = 0;
  std::uint64_t preemptions = 0, recomputed = 0, evictions = 0, plans_reused = 0, crowded_moments = 0;
};

// Without these there is little to see.
bool rarely_off(std::string_view name) { return name == "prefix_cache" || name == "batch.continuous"; }

class World {
 public:
  World(std::uint64_t seed, ThreadPool& two_threads) : rng_(derive_seed(seed, "world")), model_(random_model(seed)) {
    std::vector<Isa> isas;
    for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512})
      if (has_isa(isa)) isas.push_back(isa);
    isa_ = isas[rng_.below(isas.size())];
    solo_isa_ = isas[rng_.below(isas.size())];
    growing_ = rng_.below(3) == 0;
    steps_between_ = growing_ ? 2 : rng_.below(2) == 0 ? 10 : 50;
    options_.max_context_tokens = rng_.between(200, 600);
    options_.chunk_tokens = rng_.below(3) == 0 ? 128 : rng_.between(1, 300);
    options_.max_running = static_cast<int>(rng_.between(growing_ ? 2 : 1, 6));
    options_.pool_tokens = options_.max_context_tokens * (growing_ ? 100 : rng_.between(100, 600)) / 100;
    options_.backend = rng_.below(3) == 0 ? Backend::ref : Backend::cpu;
    if (rng_.below(2) == 0) set_switches(options_.launch, Scope::launch);
    usual_ = options_.launch;
    set_switches(usual_, Scope::request);
    const std::int64_t tail_bytes = StateLayout(model_->config, options_.launch).tail_floats() * 4;
    options_.prefix_bytes = rng_.below(5) == 0 ? rng_.between(0, 6 * tail_bytes) : 64 << 20;
    std::shared_ptr<Executor> executor = std::make_shared<InlineExecutor>();
    if (rng_.below(2) == 0) executor = std::shared_ptr<Executor>(&two_threads, [](Executor*) {});
    auto made = Scheduler::make(model_, executor, options_);
    CHECK(made.has_value());
    scheduler_ = std::move(*made);
  }

  // Plays until everything that was sent has ended.
  void play(Deeds& deeds) {
    force_isa(isa_);
    auto to_send = rng_.between(4, 12);
    while (true) {
      if (to_send > 0 && rng_.below(steps_between_) == 0) {
        --to_send;
        send();
      } else if (!sent_.empty() && rng_.below(200) == 0) {
        cancel(sent_[rng_.below(sent_.size())], deeds);
      } else if (rng_.below(300) == 0) {
        scheduler_->clear_cache();
      } else if (!scheduler_->step() && to_send == 0) {
        break;
      }
      const GeneratorStats stats = scheduler_->stats();
      deeds.crowded_moments += stats.running > 1;
      ASSERT_LE(stats.longest_wait, options_.max_running);
    }
    check_accounting(deeds);
    check_replies(deeds);
  }

 private:
  struct Sent {
    std::uint64_t id;
    GenerateRequest request;
    std::shared_ptr<RecordingSink> sink;
    bool cancelled = false;
  };

  void set_switches(Settings& settings, Scope scope) {
    for (const Switch& entry : kSwitches)
      if (entry.scope == scope)
        CHECK(settings.set(entry.name, rng_.below(rarely_off(entry.name) ? 6 : 2) == 0 ? "off" : "on"));
  }

  // A prompt of its own, one that goes on where an earlier request stopped, or one that leaves its tokens at any
  // offset.
  std::vector<std::int32_t> prompt(std::int64_t limit) {
    std::vector<std::int32_t> ids;
    std::int64_t fresh = rng_.between(1, growing_ ? 130 : 350);
    if (!sent_.empty() && rng_.below(5) != 0) {
      const Sent& base = sent_[rng_.below(sent_.size())];
      ids = base.request.prompt;
      for (const TokenScore& token : base.sink->reply.tokens) ids.push_back(token.id);
      if (rng_.below(3) == 0) ids.resize(1 + rng_.below(ids.size()));
      fresh = rng_.below(4) == 0 ? fresh / 3 : rng_.between(0, 12);
    }
    for (const std::int32_t id : random_ids(model_->config, fresh, rng_)) ids.push_back(id);
    if (static_cast<std::int64_t>(ids.size()) > limit) ids.resize(static_cast<std::size_t>(limit));
    return ids;
  }

  Sampling sampling() {
    Sampling sampling{.temperature = rng_.below(2) == 0 ? 0.0 : 0.9, .seed = rng_.next()};
    if (rng_.below(3) == 0) sampling.top_k = static_cast<int>(rng_.between(1, 10));
    if (rng_.below(3) == 0) sampling.top_p = rng_.uniform();
    if (rng_.below(4) == 0) {
      sampling.frequency_penalty = rng_.uniform();
      sampling.presence_penalty = -rng_.uniform();
      sampling.repetition_penalty = 0.7 + rng_.uniform();
      sampling.logit_bias[static_cast<std::int32_t>(rng_.below(20))] = 3;
    }
    return sampling;
  }

  void send() {
    GenerateRequest request;
    request.max_tokens =
        rng_.below(growing_ ? 2 : 20) == 0 ? rng_.between(0, options_.max_context_tokens - 1) : rng_.between(0, 20);
    request.prompt = prompt(options_.max_context_tokens - request.max_tokens);
    request.sampling = sampling();
    if (rng_.below(8) == 0) request.stop_ids = {static_cast<std::int32_t>(rng_.below(20))};
    request.top_logprobs = static_cast<int>(rng_.between(0, 3));
    request.prompt_logprobs = rng_.below(8) == 0;
    request.settings = usual_;
    if (rng_.below(8) == 0) set_switches(request.settings, Scope::request);
    ASSERT_FALSE(refuse_request(request, scheduler_->plan(), model_->config.vocab_size));
    auto sink = std::make_shared<RecordingSink>();
    const std::uint64_t id = sent_.size() + 1;
    scheduler_->add(std::make_unique<Sequence>(id, request, sink));
    sent_.push_back({id, std::move(request), std::move(sink)});
  }

  void cancel(Sent& sent, Deeds& deeds) {
    const bool midway = !sent.sink->finished;
    scheduler_->cancel(sent.id);
    ASSERT_TRUE(sent.sink->finished);
    sent.cancelled |= midway;
    deeds.cancelled_midway += midway && !sent.sink->reply.tokens.empty();
  }

  void check_accounting(Deeds& deeds) {
    const GeneratorStats stats = scheduler_->stats();
    EXPECT_EQ(stats.running + stats.waiting + stats.preempted, 0);
    EXPECT_EQ(stats.pages_used, stats.pages_cached);
    EXPECT_EQ(stats.window_pages_used, 0);
    EXPECT_EQ(stats.digest_mismatches, 0u);
    EXPECT_EQ(stats.finished + stats.cancelled, sent_.size());
    scheduler_->clear_cache();
    EXPECT_EQ(scheduler_->stats().pages_used, 0);
    EXPECT_EQ(scheduler_->stats().prefix_bytes, 0);
    deeds.preemptions += stats.preemptions;
    deeds.recomputed += stats.recomputed_tokens;
    deeds.evictions += stats.prefix_evictions;
    deeds.plans_reused += stats.plans_reused;
  }

  void check_replies(Deeds& deeds) {
    force_isa(solo_isa_);
    Engine engine = solo_engine(model_, options_);
    for (const Sent& sent : sent_) {
      const Reply& got = sent.sink->reply;
      ++deeds.requests;
      deeds.hits += got.usage.cached_tokens > 0;
      deeds.open_hits += got.usage.cached_tokens % kPageTokens != 0;
      deeds.scored += !got.prompt.empty();
      if (sent.cancelled && got.tokens.empty() && got.prompt.empty()) continue;
      ASSERT_TRUE(sent.sink->finished);
      const Reply want = run_solo(engine, sent.request);
      ASSERT_LE(got.tokens.size(), want.tokens.size());
      for (std::size_t i = 0; i < got.tokens.size(); ++i)
        ASSERT_TRUE(got.tokens[i] == want.tokens[i])
            << "request " << sent.id << ", token " << i << ": " << got.tokens[i].id << " (" << got.tokens[i].logprob
            << ") instead of " << want.tokens[i].id << " (" << want.tokens[i].logprob << ")";
      EXPECT_TRUE(got.prompt == want.prompt) << "request " << sent.id;
      if (sent.cancelled) continue;
      EXPECT_EQ(got.tokens.size(), want.tokens.size()) << "request " << sent.id;
      EXPECT_EQ(got.reason, want.reason) << "request " << sent.id;
    }
  }

  Rng rng_;
  std::shared_ptr<Model> model_;
  std::uint64_t steps_between_;  // two requests, on average
  bool growing_;                 // many short prompts with long completions in a pool for one of them
  RuntimeOptions options_;
  Isa isa_{}, solo_isa_{};
  Settings usual_;  // most requests of a world agree, or none would find another's prefix
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Sent> sent_;
};

TEST(Worlds, NoCrowdChunkHitEvictionPreemptionThreadOrInstructionSetChangesABit) {
  const Isa before = best_isa();
  ThreadPool two_threads(2);
  Deeds deeds;
  const std::uint64_t worlds = world_count();
  for (std::uint64_t seed = 0; seed < worlds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("world " + std::to_string(seed));
    World(seed, two_threads).play(deeds);
  }
  force_isa(before);
  std::printf(
      "%lu requests: %lu hits (%lu inside a page), %lu scored, %lu cancelled midway; %lu preemptions, %lu "
      "positions computed again, %lu evictions, %lu plans kept, %lu crowded moments\n",
      deeds.requests, deeds.hits, deeds.open_hits, deeds.scored, deeds.cancelled_midway, deeds.preemptions,
      deeds.recomputed, deeds.evictions, deeds.plans_reused, deeds.crowded_moments);
  if (kSlowBuild) return;
  // They must have done what they are for.
  EXPECT_GE(deeds.hits, worlds / 2);
  EXPECT_GE(deeds.open_hits, worlds / 2);
  EXPECT_GE(deeds.scored, worlds / 2);
  EXPECT_GE(deeds.cancelled_midway, worlds / 10);
  EXPECT_GE(deeds.preemptions, worlds / 20);
  EXPECT_GE(deeds.recomputed, worlds);
  EXPECT_GE(deeds.evictions, worlds);
  EXPECT_GE(deeds.plans_reused, 20 * worlds);
  EXPECT_GE(deeds.crowded_moments, 10 * worlds);
}

}  // namespace
}  // namespace plumb
