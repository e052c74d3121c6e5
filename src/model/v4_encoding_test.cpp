#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/rng.h"
#include "model/encoding.h"
#include "model/reply_text.h"
#include "model/tokenizer.h"
#include "model/v4_rules.h"

namespace plumb {
namespace {

using Ids = std::vector<std::int32_t>;

const std::filesystem::path kGolden = std::filesystem::path(PLUMB_SOURCE_DIR) / "tests/golden/tokenizer";

// A checkpoint folder as far as an encoding looks at it. Tests run as processes side by side: each has its own.
class Folder {
 public:
  explicit Folder(const std::string& name,
                  const std::string& config = R"({"architectures": ["DeepseekV4ForCausalLM"]})")
      : path(std::filesystem::path(testing::TempDir()) / (name + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    std::filesystem::copy_file(kGolden / "tokenizer.json", path / "tokenizer.json");
    std::ofstream(path / "config.json") << config;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }

  const std::filesystem::path path;
};

const Encoding& encoding() {
  static const Folder folder("plumb_v4_encoding_test");
  static const auto loaded = load_encoding(folder.path);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return **loaded;
}
const Tokenizer& tokenizer() {
  static const auto loaded = Tokenizer::load(kGolden / "tokenizer.json");
  return *loaded;
}

std::unique_ptr<ChatPrompt> laid_out(Conversation conversation) {
  auto prompt = encoding().lay_out(std::move(conversation));
  EXPECT_TRUE(prompt) << prompt.error().message;
  return prompt ? std::move(*prompt) : nullptr;
}

std::string text_of(const Ids& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += encoding().token_bytes(id);
  return text;
}

Conversation asking(std::vector<ChatMessage> messages) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  return conversation;
}

TEST(V4Encoding, IsChosenByTheTokenizerFile) {
  EXPECT_EQ(encoding().bos(), 0);
  EXPECT_EQ(encoding().eos(), 1);
  EXPECT_EQ(encoding().vocab_size(), 1076);
  const Folder v41("plumb_v41_encoding_test", R"({"architectures": ["DeepseekV41ForCausalLM"]})");
  EXPECT_NE(load_encoding(v41.path).error().message.find("this is DeepSeek-V4.1"), std::string::npos);
}

TEST(V4Encoding, AVocabularyWithoutAControlTokenIsRefused) {
  const Folder folder("plumb_v4_encoding_test_bad");
  std::ifstream in(folder.path / "tokenizer.json");
  auto json = nlohmann::json::parse(in);
  for (auto& token : json["added_tokens"])
    if (token["content"] == "｜DSML｜") token["content"] = "｜DSMK｜";
  std::ofstream(folder.path / "tokenizer.json") << json.dump();
  EXPECT_NE(load_encoding(folder.path).error().message.find("｜DSML｜ is no special token"), std::string::npos);
}

const ChatTool kWeather{.name = "get_weather",
                        .function = R"({"name": "get_weather", "parameters": {}})",
                        .properties = {"city"},
                        .required = {}};

// Without control strings in contents the two readings of a prompt are one: that of its whole text.
TEST(V4Encoding, StretchesAreTokenisedAsTheWholeText) {
  Rng rng{21};
  const std::string texts[] = {"", "x", " y\n", "Oslo and Bergen?", "1234567", "漢字", ">sun", "\n\n", "café</b>"};
  const auto text = [&] { return texts[rng.below(std::size(texts))]; };
  for (int round = 0; round < 400; ++round) {
    Conversation conversation;
    if (rng.below(2) == 0) conversation.tools = {kWeather};
    conversation.thinking = rng.below(2) == 0;
    conversation.drop_thinking = rng.below(2) == 0;
    conversation.effort = rng.below(2) == 0 ? "max" : "low";
    for (std::uint64_t n = rng.below(6); n > 0; --n) {
      const char* const roles[] = {"system", "developer", "user", "assistant", "tool"};
      ChatMessage message{.role = roles[rng.below(5)], .content = text() + "."};
      if (message.role == "assistant") message.reasoning_content = text();
      if (message.role == "assistant" && rng.below(2) == 0)
        message.tool_calls = {{"a", "get_weather", R"({"city": "Oslo", "n": [1]})"}, {"b", "now", "{}"}};
      if (message.role == "tool") message.tool_call_id = rng.below(2) == 0 ? "a" : "b";
      conversation.messages.push_back(std::move(message));
    }
    conversation.messages.push_back({"user", text()});
    const auto prepared = prepare_v4(conversation, V4Profile::preview);
    if (!prepared) continue;  // two assistant messages that cannot become one
    const auto pieces = encode_v4(prepared->messages, prepared->options);
    ASSERT_TRUE(pieces);
    std::string whole;
    for (const TextPiece& piece : *pieces) whole += piece.text;
    for (const bool literal : {true, false}) {
      conversation.literal_specials = literal;
      ASSERT_EQ(prompt_ids(*laid_out(conversation)), tokenizer().encode(whole, Specials::parse)) << whole;
    }
  }
}

TEST(V4Encoding, ControlStringsInContentsAreTextUnlessTheReferenceIsAskedFor) {
  const std::string all = "<｜User｜></think>｜DSML｜<｜end▁of▁sentence｜>";
  const auto specials = [](const Ids& ids) {
    return std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return encoding().is_special(id); });
  };
  Conversation conversation = asking({{"system", all}, {"user", all}, {"assistant", all}, {"user", all}});
  const Ids literal = prompt_ids(*laid_out(conversation));
  // BOS; user, assistant, end of thinking; EOS; user, assistant, think.
  EXPECT_EQ(specials(literal), 8);
  conversation.literal_specials = false;
  const Ids reference = prompt_ids(*laid_out(conversation));
  EXPECT_EQ(specials(reference), 8 + 4 * 4);
  EXPECT_EQ(text_of(literal), text_of(reference));
}

TEST(V4Encoding, KeysTellStretchesApart) {
  const auto keys = [](const Conversation& conversation) {
    const auto prompt = laid_out(conversation);
    std::vector<std::string> out;
    for (std::size_t i = 0; i < prompt->stretch_count(); ++i) out.push_back(prompt->key(i));
    return out;
  };
  const Conversation base = asking({{"system", "S"}, {"user", "a"}, {"assistant", "b"}, {"user", "c"}});
  const auto original = keys(base);
  ASSERT_EQ(original.size(), 4u);
  Conversation other = base;
  other.messages[3].content = "d";
  EXPECT_TRUE(std::equal(original.begin(), original.begin() + 3, keys(other).begin()));
  EXPECT_NE(keys(other)[3], original[3]);
  other = base;
  other.thinking = false;
  EXPECT_EQ(keys(other)[1], original[1]);  // its thinking is dropped either way
  EXPECT_NE(keys(other)[3], original[3]);
  other = base;
  other.tools = {kWeather};
  EXPECT_NE(keys(other)[0], original[0]);
  EXPECT_NE(keys(other)[1], original[1]);
  other = base;
  other.effort = "max";
  EXPECT_NE(keys(other)[0], original[0]);
}

TEST(V4Encoding, TheAnswersReaderKnowsThePrompt) {
  const auto answer = [](const Conversation& conversation, std::string_view text) {
    const auto prompt = laid_out(conversation);
    const auto parser = prompt->reply_parser({});
    std::vector<ReplyEvent> events;
    parser->push(prompt->answer_start(), events);
    parser->push(text, events);
    parser->finish(events);
    ReplyText out;
    for (const ReplyEvent& event : events) out.add(event);
    return out;
  };
  Conversation conversation = asking({{"user", "x"}});
  EXPECT_EQ(answer(conversation, "a</think>b").reasoning, "a");
  conversation.thinking = false;
  EXPECT_EQ(answer(conversation, "b").content, "b");
  conversation.tools = {kWeather};
  conversation.tool_choice = ToolChoice::named;
  conversation.tool_name = "get_weather";
  const ReplyText reply = answer(conversation, "</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.calls[0].name, "get_weather");
  EXPECT_EQ(reply.content, "");
  conversation.tool_choice = ToolChoice::none;
  EXPECT_TRUE(answer(conversation, "<｜DSML｜tool_calls>").content.starts_with("<｜DSML｜"));
}

TEST(V4Encoding, CompletionsGetOneBeginning) {
  EXPECT_EQ(encoding().encode_prompt("").size(), 1u);
  EXPECT_EQ(encoding().encode_prompt("x").front(), encoding().bos());
  EXPECT_EQ(encoding().encode_prompt("<｜begin▁of▁sentence｜>x"), encoding().encode_prompt("x"));
  const auto infill = encoding().encode_infill("a<think>", "b");
  ASSERT_TRUE(infill);
  EXPECT_EQ(text_of(*infill), "<｜begin▁of▁sentence｜><｜fim▁begin｜>a<think><｜fim▁hole｜>b<｜fim▁end｜>");
  EXPECT_EQ(std::count_if(infill->begin(), infill->end(), [](std::int32_t id) { return encoding().is_special(id); }),
            4);
}

TEST(V4Encoding, TokensThatNoAnswerHasAreNamed) {
  EXPECT_EQ(text_of(encoding().never_in_answers()), "<｜begin▁of▁sentence｜><｜User｜><｜Assistant｜><｜▁pad▁｜>");
}

}  // namespace
}  // namespace plumb
