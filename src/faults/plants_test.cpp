#include "faults/plants.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/test_model.h"
#include "faults/check/asker.h"
#include "faults/dealer.h"
#include "faults/recorded.h"
#include "runtime/runtime.h"
#include "server/chat_render.h"
#include "switches/on_side.h"
#include "weights/model.h"

namespace plumb::faults {
namespace {

constexpr std::int64_t kContext = 512;  // of the pool too: a long prompt takes the pages of what was stored
constexpr std::int64_t kPrompt = 310;   // three chunks and more index rows than are selected
constexpr int kDecoded = 5;

std::shared_ptr<const Model> phantom() {
  static const auto kModel = [] {
    auto model = load_model(std::string(PLUMB_SOURCE_DIR) + "/phantom/checkpoint");
    CHECK(model.has_value());
    return std::make_shared<const Model>(std::move(*model));
  }();
  return kModel;
}

std::vector<std::int32_t> random_prompt(std::uint64_t seed, std::int64_t tokens) {
  Rng rng(seed);
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < tokens; ++i) prompt.push_back(static_cast<std::int32_t>(288 + rng.below(1000)));
  return prompt;
}

// A chat of more than 400 tokens with a tool's result in it.
std::vector<std::int32_t> rendered(const Settings& settings) {
  static const auto kEncoding = std::move(*load_encoding(std::string(PLUMB_SOURCE_DIR) + "/phantom/checkpoint"));
  Conversation talk;
  talk.thinking = false;
  ChatMessage call{.role = "assistant", .content = ""};
  call.tool_calls = {{.id = "call_1", .name = "get", .arguments = R"({"key": "bako"})"}};
  talk.messages = {{.role = "user", .content = "so get the code."},
                   call,
                   {.role = "tool", .content = "code = [A1]", .tool_call_id = "call_1"},
                   {.role = "assistant", .content = "done."}};
  for (int i = 0; i < 100; ++i) {
    talk.messages.push_back({.role = "user", .content = "so the old king saw it."});
    talk.messages.push_back({.role = "assistant", .content = "ok."});
  }
  talk.messages.push_back({.role = "user", .content = "so what is it?"});
  const auto chat = kEncoding->lay_out(talk);
  CHECK(chat.has_value());
  server::RenderedChats known;
  return chosen_side<"chat.incremental_render">(settings, server::RenderStep{chat->get(), &known}).ids;
}

struct Seen {
  std::vector<std::int32_t> rendered;
  std::vector<Reply> replies;
  bool operator==(const Seen&) const = default;
};

// What a server is asked, in the shortest form in which every plant shows: cold, as a hit, going on from the end of a
// reply, a fork, after eviction; more at a time than there are rows, two of them alike.
Seen ask(const Settings& settings) {
  RuntimeOptions options;
  options.launch = settings;
  options.max_context_tokens = options.pool_tokens = kContext;
  const auto open = [&] {
    auto generator = make_generator(phantom(), std::make_shared<InlineExecutor>(), options);
    CHECK(generator.has_value());
    return std::move(*generator);
  };
  const auto generator = open();
  Asker asker(*generator, phantom()->config.vocab_size);
  Seen seen{.rendered = rendered(settings), .replies = {}};
  std::vector<Reply>& replies = seen.replies;
  const auto one = [&](const std::vector<std::int32_t>& prompt, std::int64_t tokens) {
    replies.push_back(asker.ask(asker.request(prompt, tokens, settings)));
  };
  const auto prompt = random_prompt(3, kPrompt);
  one(prompt, kDecoded);
  one(prompt, 1);
  auto longer = prompt;
  for (const TokenScore& token : replies.front().tokens) longer.push_back(token.id);
  for (const std::int32_t id : random_prompt(4, 20)) longer.push_back(id);
  one(longer, 1);
  auto fork = prompt;
  std::copy_n(random_prompt(5, 60).begin(), 60, fork.end() - 60);
  one(fork, 1);
  one(random_prompt(6, kContext - 1), 1);
  one(prompt, 1);
  one(random_prompt(11, 140), 1);
  one(fork, 1);
  one(fork, 1);  // a hit on pages that are no neighbours any more

  options.pool_tokens = 2 * kContext;
  options.max_running = 4;
  const auto busy = open();
  Asker crowd(*busy, phantom()->config.vocab_size);
  const auto twin = random_prompt(7, 150);
  for (Reply& reply : crowd.ask_together({crowd.request(twin, 2, settings), crowd.request(twin, 6, settings),
                                          crowd.request(random_prompt(8, 140), 6, settings),
                                          crowd.request(random_prompt(9, 30), 6, settings),
                                          crowd.request(random_prompt(10, 20), 4, settings)}))
    replies.push_back(std::move(reply));
  return seen;
}

class EachHost : public testing::TestWithParam<std::string_view> {
 protected:
  void TearDown() override { heal(); }
  void heal() {
    detail::side_table = sides_;
    detail::step_table = steps_;
  }

 private:
  const decltype(detail::side_table) sides_ = detail::side_table;
  const decltype(detail::step_table) steps_ = detail::step_table;
};

std::vector<std::string_view> hosts() {
  std::vector<std::string_view> list;
  for (const Plant& plant : plants())
    if (plant.side == PlantSide::on && std::ranges::find(list, plant.host) == list.end()) list.push_back(plant.host);
  return list;
}

// Each plant changes what its on side gives, unless the phantom cannot see it, as is then recorded; off stays equal to
// the bit.
TEST_P(EachHost, PlantsChangeItsOnSideAlone) {
  Settings off = Settings::defaults();
  ASSERT_TRUE(off.set(GetParam(), "off"));
  const auto honest_off = ask(off);
  std::map<std::string_view, Seen> honest_on;  // by layers
  const Plant* first = nullptr;
  for (const Plant& plant : plants()) {
    if (plant.host != GetParam() || plant.side != PlantSide::on) continue;
    if (first == nullptr) first = &plant;
    // With sanitizers a form takes half a minute: every third of a host is asked there.
    constexpr std::ptrdiff_t kSlowStride = 3;
    if (kSlowBuild && (&plant - first) % kSlowStride != 0) continue;
    SCOPED_TRACE(testing::Message() << plant.kind << ' ' << plant.form);
    Settings on = Settings::defaults();
    ASSERT_TRUE(on.set(GetParam(), plant.layers == "all" ? "on" : "on@" + std::string(plant.layers)));
    if (!honest_on.contains(plant.layers)) honest_on[plant.layers] = ask(on);
    const Recorded* r = find_recorded(plant.kind, plant.form);
    ASSERT_NE(r, nullptr);
    bool differs = false;
    for (std::uint64_t launch = 1; launch <= 3 && !differs; ++launch) {
      apply(plant, {.severity = plant.severity, .layers = std::string(plant.layers), .seed = 1, .launch = launch});
      const Seen seen = ask(on);
      differs = seen != honest_on[plant.layers];
      for (const Reply& reply : seen.replies) EXPECT_NE(reply.finish, Finish::failed);
      if (r->word == "nothing" || plant.site != "launch") break;
    }
    EXPECT_EQ(differs, r->word != "nothing");
    // Each form plants the on side alone; with sanitizers one of a host's forms stands for all, which take minutes.
    if (!kSlowBuild || &plant == first) {
      EXPECT_EQ(ask(off), honest_off);
    }
    heal();
  }
}
INSTANTIATE_TEST_SUITE_P(Table, EachHost, testing::ValuesIn(hosts()), [](const auto& host) {
  std::string name(host.param);
  std::ranges::replace(name, '.', '_');
  return name;
});

// A wrong off side leaves on as it is; a wrong step under no switch changes every setting.
TEST(Plants, OffSidesAndStepsChangeWhatTheyNameAlone) {
  const Settings all_off;
  Settings on = Settings::defaults();
  for (const Plant& plant : plants())
    if (plant.side == PlantSide::off) {
      ASSERT_TRUE(on.set(plant.host, "on"));
    }
  const Seen honest_off = ask(all_off), honest_on = ask(on);
  const auto sides = detail::side_table;
  const auto steps = detail::step_table;
  int planted = 0;
  for (const Plant& plant : plants()) {
    if (plant.side == PlantSide::on) continue;
    ++planted;
    apply(plant, {});
    EXPECT_FALSE(ask(all_off) == honest_off) << plant.kind;
    EXPECT_EQ(ask(on) == honest_on, plant.side == PlantSide::off) << plant.kind;
    detail::side_table = sides;
    detail::step_table = steps;
  }
  EXPECT_EQ(planted, 5);
}

TEST(Plants, TableNamesKnownSwitchesAndNoFormTwice) {
  std::set<std::string> names;
  for (const Plant& plant : plants()) {
    Settings settings;
    EXPECT_EQ(settings.set(plant.host, "on").has_value(), plant.side != PlantSide::step) << plant.kind;
    EXPECT_TRUE(names.insert(std::string(plant.kind) + "/" + std::string(plant.form)).second) << plant.kind;
    EXPECT_EQ(find_plant(plants(), plant.kind, plant.form), &plant);
    EXPECT_EQ(plant.prior.size(), 8u) << plant.kind;
    EXPECT_NE(plant.apply, nullptr) << plant.kind;
  }
  EXPECT_EQ(find_plant(plants(), "splitk-merge", "none"), nullptr);
}

TEST(Plants, DemoDrawsFromTheSameFourInTheSameOrder) {
  std::vector<std::string> names;
  for (const Plant& plant : dealt_plants(false))
    if (plant.side == PlantSide::on) names.push_back(std::string(plant.kind) + "/" + std::string(plant.form));
  EXPECT_EQ(names, (std::vector<std::string>{"splitk-merge/no-rescale", "idx-score-form/uniform-head-weights",
                                             "cmp-state-not-cached/index-rows-left-behind",
                                             "chunk-boundary-state/reset-indexer"}));
}

}  // namespace
}  // namespace plumb::faults
