#include "server/chat_render.h"

#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/rng.h"

namespace plumb::server {
namespace {

const std::filesystem::path kSource = PLUMB_SOURCE_DIR;

const Encoding& v4() {
  static const auto loaded = [] {
    const auto folder =
        std::filesystem::path(testing::TempDir()) / ("plumb_chat_render_test" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(kSource / "tests/golden/tokenizer/tokenizer.json", folder / "tokenizer.json",
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder / "config.json") << R"({"architectures": ["DeepseekV4ForCausalLM"]})";
    auto encoding = load_encoding(folder);
    std::filesystem::remove_all(folder);
    return encoding;
  }();
  EXPECT_TRUE(loaded) << loaded.error().message;
  return **loaded;
}

std::unique_ptr<ChatPrompt> laid_out(const Encoding& encoding, const Conversation& conversation) {
  auto prompt = encoding.lay_out(conversation);
  return prompt ? std::move(*prompt) : nullptr;
}

Conversation asking(std::vector<ChatMessage> messages) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  return conversation;
}

// Conversations that go on, branch, change their options and come back: on equals off, id for id, whatever the cache
// has kept or forgotten.
TEST(ChatIncrementalRender, IdsAreThoseOfTheWholeRendering) {
  Rng rng{31};
  const std::string words[] = {"amber", " falcon", "\n", "1234", "<think>", "<user>", "fox. ", "漢"};
  RenderedChats known(60000);
  std::vector<Conversation> running(1);
  std::size_t reused = 0, rendered = 0;
  for (int round = 0; round < 800; ++round) {
    Conversation conversation = running[rng.below(running.size())];
    for (std::uint64_t n = 1 + rng.below(3); n > 0; --n) {
      ChatMessage message{.role = rng.below(2) == 0 ? "user" : "assistant"};
      for (std::uint64_t k = rng.below(12); k > 0; --k) message.content += words[rng.below(std::size(words))];
      if (message.role == "assistant" && rng.below(2) == 0) message.reasoning_content = "because";
      conversation.messages.push_back(std::move(message));
    }
    if (rng.below(4) == 0) conversation.thinking = rng.below(2) == 0;
    if (rng.below(8) == 0) conversation.effort = "max";
    running.push_back(conversation);
    if (running.size() > 20) running.erase(running.begin() + static_cast<std::ptrdiff_t>(rng.below(running.size())));
    conversation.messages.push_back({"user", "and?"});
    const auto prompt = laid_out(v4(), conversation);
    if (prompt == nullptr) {  // V4 refuses some orders
      running.pop_back();
      if (running.empty()) running.emplace_back();
      continue;
    }
    const RenderedPrompt whole = render_whole({prompt.get(), nullptr});
    const RenderedPrompt incremental = render_incremental({prompt.get(), &known});
    ASSERT_EQ(incremental.ids, whole.ids);
    ASSERT_EQ(incremental.ends, whole.ends);
    ASSERT_LE(known.bytes(), 60000u);
    reused += incremental.reused;
    rendered += prompt->stretch_count() - incremental.reused;
  }
  EXPECT_GT(reused, rendered);
}

TEST(ChatIncrementalRender, OnlyWhatIsNewIsRendered) {
  RenderedChats known;
  Conversation conversation = asking({{"user", "my code is 7431."}});
  conversation.thinking = false;
  const auto render = [&] { return render_incremental({laid_out(v4(), conversation).get(), &known}).reused; };
  EXPECT_EQ(render(), 0u);
  EXPECT_EQ(render(), 1u);  // the question with the assistant's marker
  conversation.messages.push_back({"assistant", "noted."});
  conversation.messages.push_back({"user", "repeat it."});
  EXPECT_EQ(render(), 1u);
  conversation.messages.push_back({"assistant", "7431"});
  conversation.messages.push_back({"user", "again."});
  EXPECT_EQ(render(), 3u);
  conversation.messages[0].content = "my code is 7432.";
  EXPECT_EQ(render(), 0u);
}

// What the form itself changes is rendered again: thinking is dropped when the next question comes.
TEST(ChatIncrementalRender, WhatALaterTurnChangesIsRenderedAgain) {
  RenderedChats known;
  Conversation conversation = asking({{"system", "S"}, {"user", "a"}});
  const auto reused = [&] { return render_incremental({laid_out(v4(), conversation).get(), &known}).reused; };
  EXPECT_EQ(reused(), 0u);
  ChatMessage answer{.role = "assistant", .content = "b"};
  answer.reasoning_content = "r";
  conversation.messages.push_back(answer);
  conversation.messages.push_back({"user", "c"});
  EXPECT_EQ(reused(), 1u);  // the system text; the question now opens an answer without thinking
}

TEST(ChatIncrementalRender, TheCacheIsBounded) {
  RenderedChats known(10000);
  for (int i = 0; i < 200; ++i) {
    const auto prompt = laid_out(v4(), asking({{"user", std::string(300, 'x') + std::to_string(i)}}));
    render_incremental({prompt.get(), &known});
    ASSERT_LE(known.bytes(), 10000u);
  }
  EXPECT_GT(known.size(), 2u);
  const auto huge = laid_out(v4(), asking({{"user", std::string(100000, 'x')}}));
  render_incremental({huge.get(), &known});
  EXPECT_GT(known.size(), 2u);  // what does not fit drives nothing out
  // Conversations that begin the same way share their beginning.
  RenderedChats shared;
  for (int i = 0; i < 10; ++i)
    render_incremental({laid_out(v4(), asking({{"system", "s"}, {"user", std::to_string(i)}})).get(), &shared});
  EXPECT_EQ(shared.size(), 1u + 10u);
}

}  // namespace
}  // namespace plumb::server
