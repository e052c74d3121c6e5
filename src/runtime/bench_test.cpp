#include "runtime/bench.h"

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
INSTANTIATE_TEST_SUITE_P(Backends, BenchOn, testing::Values(Backend::ref, Backend::cpu));

TEST_P(BenchOn, TimesWhatItWasAskedToAndStaysBelowTheLimit) {
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
    // No measurement of ours is so lucky; a cost counted too high would be.
    EXPECT_LT(result->best(), result->limit) << result->what;
  }
}

TEST_P(BenchOn, OpsAreThereWithTheirLimits) {
  BenchOptions options = tiny(GetParam());
  options.threads = 0;
  options.batch = 5;
  const auto result = bench_ops(options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->rows, 5);
  EXPECT_GE(result->ops.size(), 12u);
  for (const OpResult& op : result->ops) {
    EXPECT_GT(op.seconds, 0) << op.name;
    EXPECT_GT(op.limit_seconds, 0) << op.name;
    EXPECT_LT(op.limit_seconds, 1.2 * op.seconds) << op.name;
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
