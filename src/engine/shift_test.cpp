#include "engine/shift.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/golden.h"
#include "engine/random_world.h"
#include "engine/test_model.h"

namespace plumb {
namespace {

std::vector<std::vector<std::int32_t>> random_texts(const ModelConfig& config) {
  Rng rng{81};
  return {random_ids(config, 2, rng), random_ids(config, 300, rng), random_ids(config, 129, rng)};
}

TEST(Shift, IsHalfTheMeanSquareOfWhatLogProbabilitiesOfTheTextMoved) {
  const auto model = load_test_model("tests/golden/tiny-random-a");
  const auto texts = random_texts(model->config);
  ShiftMeter meter(model, std::make_shared<InlineExecutor>(), Backend::cpu, texts);
  const Shift shift = meter.measure(switch_index("attention.q_bf16"));
  ASSERT_TRUE(shift.reached);
  ASSERT_EQ(shift.per_text.size(), texts.size());
  // From whole logits, in one pass and with the library's functions.
  Settings on;
  ASSERT_TRUE(on.set("attention.q_bf16", "on"));
  Engine engine(model, std::make_shared<InlineExecutor>(), Backend::cpu);
  const auto vocab = static_cast<std::size_t>(model->config.vocab_size);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<float> a = run_prompt(engine, texts[i], 0, Settings(), nullptr);
    const std::vector<float> b = run_prompt(engine, texts[i], 0, on, nullptr);
    const auto score = [&](const std::vector<float>& logits, std::size_t t) {
      double sum = 0;
      for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[t * vocab + v]));
      return logits[t * vocab + static_cast<std::size_t>(texts[i][t + 1])] - std::log(sum);
    };
    double want = 0;
    for (std::size_t t = 0; t + 1 < texts[i].size(); ++t) want += std::pow(score(b, t) - score(a, t), 2);
    want /= 2 * static_cast<double>(texts[i].size() - 1);
    EXPECT_GT(want, 0);
    EXPECT_NEAR(shift.per_text[i], want, 1e-6 * want + 1e-18);
  }
  EXPECT_GE(shift.upper(), shift.mean());
}

TEST(Shift, OfBitEqualSwitchesIsZeroAndStepsOfTheRuntimeAreNotReached) {
  const auto model = load_test_model("tests/golden/tiny-random-a");
  ShiftMeter meter(model, std::make_shared<InlineExecutor>(), Backend::cpu, random_texts(model->config));
  for (const std::string_view name : {"indexer.fused", "rope.table", "kv.fp8"}) {
    const auto* entry = std::ranges::find(kSwitches, name, &Switch::name);
    const Shift shift = meter.measure(static_cast<std::size_t>(entry - kSwitches.begin()));
    EXPECT_TRUE(shift.reached) << name;
    EXPECT_EQ(shift.upper() == 0, entry->op_budget.metric == Metric::exact) << name;
  }
  EXPECT_FALSE(meter.measure(switch_index("prefix_cache")).reached);
}

}  // namespace
}  // namespace plumb
