#include "runtime/bench.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace plumb {
namespace {

BenchOptions tiny(Backend backend) {
  BenchOptions options;
  options.model = std::filesystem::path(PLUMB_SOURCE_DIR) / "tests/golden/tiny-random-a";
  options.backend = backend;
  options.threads = 2;
  options.tokens = 200;
  options.repeats = 2;
  return options;
}

class BenchOn : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, BenchOn, testing::Values(Backend::ref, Backend::cpu),
                         [](const auto& of) { return std::string(of.param == Backend::ref ? "ref" : "cpu"); });

TEST_P(BenchOn, TimesWhatItWasAskedTo) {
  BenchOptions options = tiny(GetParam());
  options.batch = 3;
  for (const auto bench : {&bench_prefill, &bench_decode}) {
    const auto result = bench(options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->runs.size(), 2u);
    EXPECT_EQ(result->tokens % 3, 0);
    EXPECT_GT(result->median(), 0);
    EXPECT_LE(result->median(), result->best());
    EXPECT_GT(result->per_processor_second(), 0);
    EXPECT_EQ(result->machine.threads, 2);
    EXPECT_GT(result->machine.read_bytes, 0);
    // Times are of whatever else this machine does; that the cost of a pass is counted right, cost_test.cpp shows.
    EXPECT_GT(result->limit, 0);
  }
}

// Multiply-adds count as two operations. The counts are worked out by hand from the checkpoint's sizes: 5 rows, the
// last of 200 positions.
TEST_P(BenchOn, OpsAreThereWithTheirCostsAndLimits) {
  const std::vector<std::pair<std::string, double>> expected = {
      {"linear q_a 64x24", 2. * 5 * 64 * 24},
      {"linear q_b 24x128", 2. * 5 * 24 * 128},
      {"linear o_b 32x64", 2. * 5 * 32 * 64},
      {"linear router 64x8", 2. * 5 * 64 * 8},
      {"linear head 64x256", 2. * 5 * 64 * 256},
      {"grouped_linear 2x64x16", 2. * 5 * 2 * 64 * 16},
      {"experts 2 of 8, 64x32", 2. * 5 * 3 * 64 * 32 * (2 + 1)},  // gate, up, down; 2 routed, 1 shared
      {"experts grouped", 2. * 5 * 3 * 64 * 32 * (2 + 1)},
      {"hc_pre", 2. * 5 * 4 * 64 * (4 + 4 + 16 + 2)},  // pre, post, comb; norm and collapse
      {"hc_post", 2. * 5 * 4 * (4 + 1) * 64},
      {"rms_norm 64", 4. * 5 * 64},
      {"rope 4x8", 3. * 5 * 4 * 8},
      {"indexer 50 keys, top 16", 2. * 5 * 50 * 8 * 16},
      {"attention 48 keys, 4x32", 2. * 2 * 5 * (32 + 16) * 4 * 32},  // scores and sum; window and selected rows
  };
  BenchOptions options = tiny(GetParam());
  options.threads = 0;
  options.batch = 5;
  const auto result = bench_ops(options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->rows, 5);
  ASSERT_EQ(result->ops.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const OpResult& op = result->ops[i];
    EXPECT_EQ(op.name, expected[i].first);
    EXPECT_EQ(op.operations, expected[i].second) << op.name;
    EXPECT_GT(op.seconds, 0) << op.name;
    EXPECT_GT(op.bytes, 0) << op.name;
    EXPECT_EQ(op.limit_seconds, std::max(op.operations / result->machine.operations_per_second,
                                         op.bytes / result->machine.bytes_per_second))
        << op.name;
  }
}

TEST(Bench, RefusesWhatItCannotRun) {
  const auto message = [](auto&& change, auto bench) {
    BenchOptions options = tiny(Backend::cpu);
    change(options);
    const auto result = bench(options);
    return result ? std::string("accepted") : result.error().message;
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_PRED2(says, message([](BenchOptions& o) { o.tokens = 0; }, &bench_prefill), "at least 1");
  EXPECT_PRED2(says, message([](BenchOptions& o) { o.batch = 0; }, &bench_decode), "at least 1");
  EXPECT_PRED2(says, message([](BenchOptions& o) { o.threads = 257; }, &bench_decode), "257 threads");
  EXPECT_PRED2(says, message([](BenchOptions& o) { o.tokens = 1 << 20; }, &bench_prefill), "the model has 8192");
  EXPECT_PRED2(says, message([](BenchOptions& o) { o.tokens = 8192; }, &bench_decode), "the model has 8192");
  EXPECT_PRED2(says, message([](BenchOptions& o) { o.model = "/nonexistent"; }, &bench_prefill), "/nonexistent");
  const auto past_the_layers = [](BenchOptions& o) { ASSERT_TRUE(o.settings.set("attention.split_k", "on@60")); };
  EXPECT_PRED2(says, message(past_the_layers, &bench_prefill), "layers 0 to 5");
  EXPECT_PRED2(says, message(past_the_layers, [](const BenchOptions& o) { return bench_ops(o); }), "one thread");
}

}  // namespace
}  // namespace plumb
