#include "faults/plants.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "runtime/open_model.h"
#include "switches/on_side.h"

namespace plumb::faults {
namespace {

constexpr int kPromptTokens = 600;  // four chunks and more index rows than are selected
constexpr int kCompletionTokens = 8;

class Scores final : public TokenSink {
 public:
  void on_prompt_scores(std::vector<TokenScore>) override {}
  void on_token(TokenScore token) override { values.push_back(token.logprob); }
  void on_finish(Finish, Usage usage) override {
    const std::lock_guard lock(mutex_);
    cached_tokens = usage.cached_tokens;
    finished_ = true;
    done_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return finished_; });
  }
  std::vector<float> values;
  std::int64_t cached_tokens = 0;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool finished_ = false;
};

// Log-probabilities of a greedy continuation of one prompt, asked twice: cold, then as a hit where prefixes are stored.
struct Replies {
  std::vector<float> cold, again;
  std::int64_t cached_tokens = 0;
  bool operator==(const Replies&) const = default;
};

Replies ask(const Settings& settings) {
  auto opened = open_model(std::string(PLUMB_SOURCE_DIR) + "/phantom", 2, {});
  EXPECT_TRUE(opened) << opened.error().message;
  Rng rng(3);
  GenerateRequest request;
  for (int i = 0; i < kPromptTokens; ++i) request.prompt.push_back(static_cast<std::int32_t>(272 + rng.below(600)));
  request.max_tokens = kCompletionTokens;
  request.sampling.temperature = 0;
  request.top_logprobs = 0;
  request.settings = settings;
  Replies replies;
  for (std::vector<float>* values : {&replies.cold, &replies.again}) {
    const auto scores = std::make_shared<Scores>();
    EXPECT_TRUE(opened->generator->submit(request, scores));
    scores->wait();
    *values = scores->values;
    replies.cached_tokens = scores->cached_tokens;
  }
  return replies;
}

class EachPlant : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { before_ = detail::side_table; }
  void TearDown() override { detail::side_table = before_; }

 private:
  decltype(detail::side_table) before_;
};

TEST_P(EachPlant, ChangesItsOnSideAloneAndOffStaysEqualToTheBit) {
  const Plant& plant = plants()[GetParam()];
  Settings host_off = Settings::defaults();
  ASSERT_TRUE(host_off.set(plant.host, "off"));
  const Replies honest_on = ask(Settings::defaults());
  const Replies honest_off = ask(host_off);

  plant.apply({.severity = plant.severity, .layers = std::string(plant.layers)});
  const Replies planted_on = ask(Settings::defaults());
  EXPECT_FALSE(planted_on == honest_on) << plant.kind;
  EXPECT_EQ(planted_on.cached_tokens, honest_on.cached_tokens) << plant.kind;
  EXPECT_EQ(ask(host_off), honest_off) << plant.kind;
}
INSTANTIATE_TEST_SUITE_P(Table, EachPlant, testing::Range<std::size_t>(0, 4));

TEST(Plants, TableNamesKnownSwitchesAndNoFormTwice) {
  EXPECT_EQ(plants().size(), 4u);
  std::set<std::string> names;
  for (const Plant& plant : plants()) {
    Settings settings;
    EXPECT_TRUE(settings.set(plant.host, "on")) << plant.kind;
    EXPECT_TRUE(names.insert(std::string(plant.kind) + "/" + std::string(plant.form)).second);
    EXPECT_EQ(find_plant(plants(), plant.kind, plant.form), &plant);
  }
  EXPECT_EQ(find_plant(plants(), "splitk-merge", "none"), nullptr);
}

}  // namespace
}  // namespace plumb::faults
