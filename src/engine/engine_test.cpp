#include "engine/engine.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "engine/golden.h"
#include "engine/local_sequence.h"
#include "engine/random_world.h"
#include "engine/test_model.h"

namespace plumb {
namespace {

// The switches that the engine reads; the others are steps of the runtime.
bool of_engine(const Switch& entry) { return entry.per_layer || entry.name == "rope.table"; }

Settings with(std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
  Settings settings;
  for (const auto& [name, value] : values) CHECK(settings.set(name, value));
  return settings;
}

// All off, each switch alone, all on, the defaults, some layers only, and mixtures.
std::vector<Settings> all_settings() {
  std::vector<Settings> all{Settings(), Settings::defaults()};
  Settings every, layers;
  std::vector<Settings> mixtures(kSlowBuild ? 1 : 4);
  Rng rng{7};
  for (const Switch& entry : kSwitches) {
    if (!of_engine(entry)) continue;
    all.push_back(with({{entry.name, "on"}}));
    CHECK(every.set(entry.name, "on"));
    if (entry.per_layer) CHECK(layers.set(entry.name, rng.below(2) == 0 ? "on@1" : "on@0,2-3"));
    for (Settings& mixture : mixtures) CHECK(mixture.set(entry.name, rng.below(2) == 0 ? "on" : "off"));
  }
  all.push_back(every);
  all.push_back(layers);
  all.insert(all.end(), mixtures.begin(), mixtures.end());
  return all;
}

// One sequence of a crowd: its ids, how far it is, and what it must give.
struct Member {
  std::vector<std::int32_t> ids;
  std::vector<float> want;  // solo, in one shot
  std::unique_ptr<LocalSequence> sequence;
  std::int64_t done = 0;
};

// Runs the members to their end in passes of random composition; each row of logits must have the bits of the solo run.
void run_crowd(Engine& engine, const Settings& settings, std::vector<Member>& members, Rng& rng) {
  const std::int64_t vocab = engine.config().vocab_size;
  for (int pass = 0; pass < 10000; ++pass) {
    std::vector<BatchSequence> batch;
    std::vector<Member*> in_batch;
    bool all_done = true;
    for (Member& member : members) {
      const auto left = static_cast<std::int64_t>(member.ids.size()) - member.done;
      all_done &= left == 0;
      if (left == 0 || rng.below(3) == 0) continue;
      const std::int64_t longest = rng.below(3) == 0 ? 200 : rng.below(2) == 0 ? 7 : 1;
      const std::int64_t count = std::min(left, rng.between(1, longest));
      if (rng.below(4) == 0) member.sequence = transplant(engine.layout(), engine.config(), member.sequence->state());
      batch.push_back(
          {&member.sequence->reserve(member.done + count),
           std::span(member.ids).subspan(static_cast<std::size_t>(member.done), static_cast<std::size_t>(count)),
           rng.below(2) == 0, nullptr});
      in_batch.push_back(&member);
    }
    if (all_done) return;
    const Batch pass_batch{batch, &settings};
    const std::int64_t rows = Engine::logits_rows(pass_batch);
    std::vector<float> logits(static_cast<std::size_t>(rows * vocab));
    engine.forward(pass_batch, {logits.data(), {rows, vocab}});
    std::int64_t row = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Member& member = *in_batch[i];
      const auto count = static_cast<std::int64_t>(batch[i].tokens.size()), shown = batch[i].all_logits ? count : 1;
      member.done += count;
      ASSERT_EQ(batch[i].state->length, member.done);
      ASSERT_TRUE(same_bits(
          std::span(logits).subspan(static_cast<std::size_t>(row * vocab), static_cast<std::size_t>(shown * vocab)),
          std::span(member.want)
              .subspan(static_cast<std::size_t>((member.done - shown) * vocab),
                       static_cast<std::size_t>(shown * vocab))))
          << "pass " << pass << ", positions up to " << member.done;
      row += shown;
    }
  }
  FAIL() << "the crowd did not finish";
}

class EngineOn : public testing::TestWithParam<Backend> {};
class ObserverOn : public testing::TestWithParam<Backend> {};
const auto kBackends = testing::Values(Backend::ref, Backend::cpu);
std::string name_of(const testing::TestParamInfo<Backend>& info) { return std::string(backend_name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Backends, EngineOn, kBackends, name_of);
INSTANTIATE_TEST_SUITE_P(Backends, ObserverOn, kBackends, name_of);

TEST_P(EngineOn, ChunksCrowdsTransplantsAndThreadsDoNotChangeABit) {
  for (std::uint64_t seed = 1; seed <= (kSlowBuild ? 3 : 8); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto model = random_model(seed);
    Rng rng{derive_seed(seed, "crowd")};
    const auto pool = std::make_shared<ThreadPool>(static_cast<int>(rng.between(1, 3)));
    for (const Settings& settings : all_settings()) {
      SCOPED_TRACE(settings.key());
      Engine solo(model, std::make_shared<InlineExecutor>(), GetParam(), settings);
      Engine engine(model, pool, GetParam(), settings);
      std::vector<Member> members(static_cast<std::size_t>(rng.between(1, 4)));
      for (Member& member : members) {
        member.ids = random_ids(model->config, rng.between(1, 280), rng);
        member.want = run_prompt(solo, member.ids, 0, settings, nullptr);
        member.sequence = std::make_unique<LocalSequence>(engine.layout());
      }
      run_crowd(engine, settings, members, rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EngineOn, BitsAreTheSameOnEveryInstructionSet) {
  const Isa before = best_isa();
  for (std::uint64_t seed = 21; seed <= 23; ++seed) {
    const auto model = random_model(seed);
    Rng rng{seed};
    const std::vector<std::int32_t> ids = random_ids(model->config, 150, rng);
    for (const Settings& settings : all_settings()) {
      std::vector<float> want;
      for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
        if (!has_isa(isa)) continue;
        force_isa(isa);
        Engine engine(model, std::make_shared<InlineExecutor>(), GetParam(), settings);
        const std::vector<float> logits = run_prompt(engine, ids, 0, settings, nullptr);
        if (want.empty()) want = logits;
        EXPECT_TRUE(same_bits(logits, want)) << static_cast<int>(isa);
      }
    }
  }
  force_isa(before);
}

// The median over rows of their relative difference: in a random model a small difference turns near-ties of experts
// and index rows, and those few rows then differ a lot.
double median_difference(std::span<const float> got, std::span<const float> want, std::int64_t width) {
  std::vector<double> rows;
  const auto count = static_cast<std::size_t>(width);
  for (std::size_t i = 0; i < want.size(); i += count)
    rows.push_back(difference(got.subspan(i, count), want.subspan(i, count)).relative);
  std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2), rows.end());
  return rows[rows.size() / 2];
}

TEST_P(EngineOn, EachSwitchGivesTheBitsOfOffOrIsCloseToThem) {
  const auto model = load_test_model("tests/golden/tiny-random-a");
  Rng rng{31};
  const std::vector<std::int32_t> ids = random_ids(model->config, 300, rng);
  const auto logits_with = [&](const Settings& settings) {
    Engine engine(model, std::make_shared<InlineExecutor>(), GetParam(), settings);
    return run_prompt(engine, ids, 0, settings, nullptr);
  };
  const std::vector<float> off = logits_with(Settings());
  for (const Switch& entry : kSwitches) {
    if (!of_engine(entry)) continue;
    SCOPED_TRACE(entry.name);
    const std::size_t index = static_cast<std::size_t>(&entry - kSwitches.data());
    const SideCounts before = side_counts(index);
    const std::vector<float> on = logits_with(with({{entry.name, "on"}}));
    EXPECT_GT(side_counts(index).on, before.on);
    EXPECT_EQ(side_counts(index).off, before.off);
    if (entry.op_budget.metric == Metric::exact) {
      EXPECT_TRUE(same_bits(on, off));
      continue;
    }
    EXPECT_FALSE(same_bits(on, off));
    // What one op may do, a few times over: there are six layers.
    EXPECT_LE(median_difference(on, off, model->config.vocab_size),
              std::max(1e-5, 4 * std::sqrt(entry.op_budget.bound)));
  }
}

TEST_P(EngineOn, StateIsSmallerWithQuantisedRows) {
  const auto model = load_test_model("phantom/checkpoint");
  const StateLayout plain(model->config), coded(model->config, with({{"kv.fp8", "on"}, {"indexer.fp8_keys", "on"}}));
  // The rotary third of a row is kept in f32.
  EXPECT_LT(coded.window_page_floats(), 0.55 * static_cast<double>(plain.window_page_floats()));
  EXPECT_LT(coded.page_floats(), 0.55 * static_cast<double>(plain.page_floats()));
  EXPECT_EQ(coded.open_floats(), plain.open_floats());
}

TEST_P(EngineOn, ATailSavedAtAnyLengthContinuesAsIfItHadNeverStopped) {
  const auto model = load_test_model("tests/golden/tiny-random-a");
  Rng rng{41};
  constexpr std::int64_t kLength = 262;  // every residue of 128 twice
  const std::vector<std::int32_t> ids = random_ids(model->config, kLength + 6, rng);
  const std::int64_t vocab = model->config.vocab_size;
  for (const Settings& settings : {Settings::defaults(), with({{"kv.fp8", "on"}, {"indexer.fp8_keys", "on"}})}) {
    Engine engine(model, std::make_shared<InlineExecutor>(), GetParam(), settings);
    const std::vector<float> cold = run_prompt(engine, ids, 0, settings, nullptr);
    LocalSequence sequence(engine.layout());
    std::vector<float> logits(static_cast<std::size_t>(5 * vocab));
    for (std::int64_t length = 0; length < kLength; ++length) {
      const auto restored = transplant(engine.layout(), model->config, sequence.state());
      const BatchSequence next{&restored->reserve(length + 5),
                               std::span(ids).subspan(static_cast<std::size_t>(length), 5), true, nullptr};
      engine.forward({std::span(&next, 1), &settings}, {logits.data(), {5, vocab}});
      ASSERT_TRUE(same_bits(logits, std::span(cold).subspan(static_cast<std::size_t>(length * vocab),
                                                            static_cast<std::size_t>(5 * vocab))))
          << "after " << length << " tokens";
      const BatchSequence one{&sequence.reserve(length + 1),
                              std::span(ids).subspan(static_cast<std::size_t>(length), 1), false, nullptr};
      engine.forward({std::span(&one, 1), &settings}, {logits.data(), {1, vocab}});
    }
  }
}

// A snapshot inside a pass is the open part that a pass ending there would have left, at every length.
TEST_P(EngineOn, ASnapshotInsideAPassIsWhatAPassEndingThereLeaves) {
  for (std::uint64_t seed = 51; seed <= 54; ++seed) {
    const auto model = random_model(seed);
    Engine engine(model, std::make_shared<InlineExecutor>(), GetParam());
    Rng rng{seed};
    const std::int64_t before = rng.between(0, 70), length = before + 200;
    const std::vector<std::int32_t> ids = random_ids(model->config, length, rng);
    const Settings settings = Settings::defaults();
    std::vector<float> logits(static_cast<std::size_t>(model->config.vocab_size));
    const auto forward = [&](LocalSequence& sequence, std::int64_t begin, std::int64_t end,
                             std::span<const OpenSnapshot> snapshots) {
      const BatchSequence in{
          &sequence.reserve(end),
          std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), false,
          nullptr, snapshots};
      engine.forward({std::span(&in, 1), &settings}, {logits.data(), {1, model->config.vocab_size}});
    };
    LocalSequence whole(engine.layout()), steps(engine.layout());
    for (LocalSequence* sequence : {&whole, &steps})
      if (before > 0) forward(*sequence, 0, before, {});
    std::vector<std::vector<float>> open(static_cast<std::size_t>(length - before));
    std::vector<OpenSnapshot> snapshots;
    for (std::int64_t end = before + 1; end <= length; ++end)
      snapshots.push_back({end, &open[static_cast<std::size_t>(end - before - 1)]});
    forward(whole, before, length, snapshots);
    for (std::int64_t end = before + 1; end <= length; ++end) {
      forward(steps, end - 1, end, {});
      ASSERT_TRUE(same_bits(open[static_cast<std::size_t>(end - before - 1)], steps.state().open))
          << "seed " << seed << ", after " << end << " tokens";
    }
    EXPECT_TRUE(same_bits(whole.state().open, steps.state().open));
  }
}

TEST_P(EngineOn, WindowPagesThatLeftTheWindowAreNotRead) {
  const auto model = load_test_model("tests/golden/tiny-random-a");
  Engine engine(model, std::make_shared<InlineExecutor>(), GetParam());
  Rng rng{42};
  const std::vector<std::int32_t> ids = random_ids(model->config, 400, rng);
  const Settings settings = Settings::defaults();
  const std::int64_t vocab = model->config.vocab_size;
  const std::vector<float> cold = run_prompt(engine, ids, 0, settings, nullptr);
  LocalSequence sequence(engine.layout());
  std::vector<float> logits(static_cast<std::size_t>(vocab));
  for (std::int64_t p = 0; p < 400; ++p) {
    SequenceState& state = sequence.reserve(p + 1);
    for (std::int64_t page = 0; (page + 1) * kPageTokens <= p - (model->config.window - 1); ++page)
      state.window_pages[static_cast<std::size_t>(page)] = nullptr;
    const BatchSequence in{&state, std::span(ids).subspan(static_cast<std::size_t>(p), 1), false, nullptr};
    engine.forward({std::span(&in, 1), &settings}, {logits.data(), {1, vocab}});
    ASSERT_TRUE(same_bits(
        logits, std::span(cold).subspan(static_cast<std::size_t>(p * vocab), static_cast<std::size_t>(vocab))));
  }
}

// Names and shapes of all ports, values untouched or overwritten for one name.
class Watcher final : public Observer {
 public:
  explicit Watcher(std::string overwrite = "") : overwrite_(std::move(overwrite)) {}
  void visit(const Port& port) override {
    seen.emplace(port.name);
    EXPECT_NE(port.f32 == nullptr, port.i32 == nullptr);
    if (port.name != overwrite_ || port.f32 == nullptr) return;
    std::int64_t count = 1;
    for (const std::int64_t extent : port.extents) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) port.f32[i] = port.f32[i] * -0.5f + 0.1f;
  }
  std::set<std::string> seen;

 private:
  std::string overwrite_;
};

TEST_P(ObserverOn, WatchingChangesNoBitAndNoSide) {
  for (std::uint64_t seed = 51; seed <= 54; ++seed) {
    const auto model = random_model(seed);
    Rng rng{seed};
    const std::vector<std::int32_t> ids = random_ids(model->config, 140, rng);
    for (const Settings& settings : all_settings()) {
      Engine engine(model, std::make_shared<ThreadPool>(2), GetParam(), settings);
      constexpr std::size_t kFused = switch_index("indexer.fused");
      const SideCounts before = side_counts(kFused);
      const std::vector<float> alone = run_prompt(engine, ids, 50, settings, nullptr);
      const SideCounts between = side_counts(kFused);
      Watcher watcher;
      EXPECT_TRUE(same_bits(run_prompt(engine, ids, 50, settings, &watcher), alone));
      EXPECT_EQ(side_counts(kFused).on - between.on, between.on - before.on);
      EXPECT_EQ(side_counts(kFused).off - between.off, between.off - before.off);
      for (int layer = 0; layer < static_cast<int>(model->config.layers.size()); ++layer) {
        const bool sparse =
            model->config.layers[static_cast<std::size_t>(layer)].attention == AttentionKind::compressed_sparse;
        const std::string scores = "layers." + std::to_string(layer) + ".indexer.scores";
        EXPECT_EQ(watcher.seen.contains(scores), sparse && !settings.on(kFused, layer));
      }
    }
  }
}

TEST_P(ObserverOn, WhatItWritesIsWhatFollowsUse) {
  const auto model = random_model(61);
  Engine engine(model, std::make_shared<InlineExecutor>(), GetParam());
  Rng rng{61};
  const std::vector<std::int32_t> ids = random_ids(model->config, 80, rng);
  Watcher names;
  const std::vector<float> untouched = run_prompt(engine, ids, 0, Settings(), &names);
  ASSERT_GT(names.seen.size(), 80u);
  for (const std::string& name : names.seen) {
    if (name.ends_with("topk") || name.ends_with("indices")) continue;
    Watcher patch(name);
    EXPECT_FALSE(same_bits(run_prompt(engine, ids, 0, Settings(), &patch), untouched)) << name;
  }
}

TEST_P(ObserverOn, SeesItsOwnSequenceOnlyWithPositionsOfThatSequence) {
  const auto model = random_model(71);
  Engine engine(model, std::make_shared<ThreadPool>(2), GetParam());
  Rng rng{71};
  const std::vector<std::int32_t> a = random_ids(model->config, 33, rng), b = random_ids(model->config, 57, rng);
  TraceCollector solo, crowd;
  run_prompt(engine, b, 0, Settings(), &solo);
  LocalSequence first(engine.layout()), second(engine.layout());
  const Settings settings;
  const BatchSequence batch[] = {{&first.reserve(33), a, true, nullptr}, {&second.reserve(57), b, true, &crowd}};
  std::vector<float> logits(static_cast<std::size_t>(90 * model->config.vocab_size));
  engine.forward({batch, &settings}, {logits.data(), {90, model->config.vocab_size}});
  ASSERT_EQ(crowd.names(), solo.names());
  for (const std::string& name : solo.names()) {
    EXPECT_EQ(crowd.tensor(name).shape, solo.tensor(name).shape) << name;
    EXPECT_TRUE(same_bits(crowd.tensor(name).f32, solo.tensor(name).f32)) << name;
    EXPECT_EQ(crowd.tensor(name).i32, solo.tensor(name).i32) << name;
  }
}

}  // namespace
}  // namespace plumb
