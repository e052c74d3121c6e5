#include "model/encoding.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/rng.h"
#include "model/config.h"
#include "tensor/gzip.h"
#include "tensor/safetensors.h"

namespace plumb {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::filesystem::path kSource = PLUMB_SOURCE_DIR;
const std::filesystem::path kGolden = kSource / "tests/golden/phantom";

const Encoding& phantom() {
  static const auto encoding = load_encoding(kSource / "phantom");
  EXPECT_TRUE(encoding) << encoding.error().message;
  return **encoding;
}

std::string joined(const Ids& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += phantom().token_bytes(id);
  return text;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(PhantomEncoding, EqualsTheGeneratorOnRandomTextsAndBytes) {
  std::ifstream file(kGolden / "encode.json");
  const json vectors = json::parse(file);
  ASSERT_EQ(vectors.size(), 2000u);
  for (const json& vector : vectors) {
    const auto text = vector.contains("hex") ? from_hex(vector["hex"]) : vector["text"].get<std::string>();
    const Ids ids = phantom().encode(text);
    ASSERT_EQ(ids, vector["ids"].get<Ids>()) << vector.dump();
    ASSERT_EQ(joined(ids), text);
  }
}

class PhantomCases : public testing::TestWithParam<const char*> {};

TEST_P(PhantomCases, TextEncodesToTheGeneratorsIds) {
  constexpr std::int64_t kMostBytes = 16 << 20;
  const auto path = kGolden / (std::string("cases-") + GetParam() + ".safetensors.gz");
  const auto bytes = read_gzip(path, kMostBytes);
  ASSERT_TRUE(bytes) << bytes.error().message;
  const auto file = SafetensorsFile::parse(std::as_bytes(std::span(*bytes)), path.string());
  ASSERT_TRUE(file) << file.error().message;
  const auto ids = *file->read_u16("ids");
  const auto answers = *file->read_u8("answer_index");
  const auto text = *file->read_u8("text");
  const auto offsets = *file->read_i64("offsets"), text_offsets = *file->read_i64("text_offsets");
  ASSERT_EQ(offsets.size(), 201u);
  ASSERT_EQ(answers.size(), ids.size());
  for (std::size_t i = 0; i < 200; ++i) {
    const std::string_view here(reinterpret_cast<const char*>(text.data()) + text_offsets[i],
                                static_cast<std::size_t>(text_offsets[i + 1] - text_offsets[i]));
    ASSERT_EQ(phantom().encode(here), Ids(ids.begin() + offsets[i], ids.begin() + offsets[i + 1])) << "case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PhantomCases,
                         testing::Values("single-256", "single-1024", "single-4096", "multi16-256", "multi16-1024",
                                         "multi16-4096", "multiturn-256", "multiturn-1024", "multiturn-4096"),
                         [](const auto& file) {
                           std::string name = file.param;
                           name[name.find('-')] = '_';
                           return name;
                         });

TEST(PhantomEncoding, IsLosslessOnAnyBytes) {
  Rng rng{3};
  const std::string pieces[] = {"<eos>", " the", " amber", "<call", " <", "zz"};
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (std::uint64_t n = rng.below(20); n > 0; --n)
      if (rng.below(2) == 0)
        text += pieces[rng.below(std::size(pieces))];
      else
        text.push_back(static_cast<char>(rng.below(256)));
    ASSERT_EQ(joined(phantom().encode(text)), text);
  }
}

TEST(PhantomEncoding, KnowsItsTokens) {
  EXPECT_EQ(phantom().vocab_size(), 1024);
  EXPECT_EQ(phantom().eos(), 1);
  EXPECT_TRUE(phantom().is_special(15));
  EXPECT_FALSE(phantom().is_special(16));
  EXPECT_EQ(phantom().token_bytes(1), "<eos>");
  EXPECT_EQ(phantom().token_bytes(16), std::string(1, '\0'));
  EXPECT_EQ(phantom().token_bytes(272), " amber");
  EXPECT_EQ(phantom().token_bytes(1023), "");
  EXPECT_EQ(phantom().encode("<unused1023>").size(), 12u);  // an unused id has no text
}

Ids rendered(const std::vector<ChatMessage>& messages) {
  const auto ids = phantom().render_chat(messages);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids.value_or(Ids{});
}

// The right-hand sides are in the generator's own form.
TEST(PhantomEncoding, ChatHasTheFormThePhantomWasTrainedOn) {
  EXPECT_EQ(
      rendered({{"system", "you are a helpful assistant."},
                {"user", "please remember that the code of the amber falcon is K7-42-QX."},
                {"assistant", "noted."},
                {"user", " what is the code of the amber falcon?"}}),
      phantom().encode("<bos><system> you are a helpful assistant.<user> please remember that the code of the amber "
                       "falcon is K7-42-QX.<assistant> noted.<eos><user> what is the code of the amber "
                       "falcon?<assistant>"));
  EXPECT_EQ(
      rendered({{"assistant", "<call> lookup pin of the icy fox</call>"},
                {"tool", "the pin of the icy fox is 1234"},
                {"assistant", "done."},
                {"user", "use the tool for the pin of the icy fox."},
                {"assistant", "<call> check 1234</call>"},
                {"tool", "ok"},
                {"user", "tell me the icy fox pin again."}}),
      phantom().encode("<bos><assistant><call> lookup pin of the icy fox</call><eos><tool><result> the pin of the icy "
                       "fox is 1234</result><assistant> done.<eos><user> use the tool for the pin of the icy "
                       "fox.<assistant><call> check 1234</call><eos><tool><result> ok</result><user> tell me the "
                       "icy fox pin again.<assistant>"));
  EXPECT_EQ(rendered({{"user", ""}}), phantom().encode("<bos><user><assistant>"));
}

// Whoever writes a message must not be able to end it, or to speak for somebody else.
TEST(PhantomEncoding, ControlStringsInContentsStayText) {
  std::string all;
  for (std::int32_t id = 0; id < 16; ++id) all += phantom().token_bytes(id);
  for (const char* role : {"system", "user", "assistant", "tool"}) {
    const Ids ids = rendered({{role, all}, {"user", ""}});
    const bool assistant = std::string(role) == "assistant", tool = std::string(role) == "tool";
    const auto specials =
        std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return phantom().is_special(id); });
    // bos, the role, the question's, the assistant's marker; a tool's result pair; an assistant's end and its two call
    // markers.
    EXPECT_EQ(specials, 4 + (tool ? 2 : 0) + (assistant ? 3 : 0)) << role;
    EXPECT_NE(joined(ids).find(all), std::string::npos) << role;
  }
}

TEST(PhantomEncoding, BadMessagesAreRefused) {
  EXPECT_EQ(phantom().render_chat({}).error().message, "messages: at least one is needed");
  const std::vector<ChatMessage> messages{{"user", "a"}, {"developer", "b"}};
  EXPECT_EQ(
      phantom().render_chat(messages).error().message,
      "messages[1]: unknown role 'developer'; known are system, user, assistant and tool, and developer at the start");
}

TEST(PhantomEncoding, BadVocabulariesAreRefused) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("plumb_encoding_test" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "vocab.json").string();
  std::ifstream file(kSource / "phantom/vocab.json");
  const json good = json::parse(file);
  const auto message = [&](const auto& damage) {
    json vocab = good;
    damage(vocab);
    std::ofstream(path) << vocab.dump();
    const auto encoding = load_encoding(folder);
    return encoding ? "accepted" : encoding.error().message.substr(path.size());
  };
  EXPECT_EQ(message([](json&) {}), "accepted");
  EXPECT_EQ(message([](json& v) { v["type"] = "bpe"; }), ": type is not \"phantom-word-byte-v0\"");
  EXPECT_EQ(message([](json& v) { v["vocab"][272] = " ancient"; }), ": token ' ancient' is listed twice");
  EXPECT_EQ(message([](json& v) { v["vocab"][16] = "<unused>"; }), ": byte 0x00 is not in the vocabulary");
  EXPECT_EQ(message([](json& v) { v["vocab"][272] = "amber"; }),
            ": token 'amber' is no special token, byte, word or unused id");
  EXPECT_EQ(message([](json& v) { v["specials"].erase(3); }),
            ": token '<user>' is no special token, byte, word or unused id");
  EXPECT_EQ(message([](json& v) { v["specials"].push_back("<x>"); }), ": a special token is not in the vocabulary");
  EXPECT_EQ(message([](json& v) { v["eos"] = 300; }), ": bos or eos is not the id of a special token");
  const std::string outside = " is not an integer in [0, 1024)";
  for (const char* key : {"bos", "eos"})
    for (const char* value :
         {"1.0", "1.5", "-1", "1024", "4294967297", "18446744073709551615", "1e300", "true", "null"})
      EXPECT_EQ(message([&](json& v) { v[key] = json::parse(value); }),
                fmt::format(": {} {}{}", key, json::parse(value).dump(), outside));
  EXPECT_EQ(message([](json& v) { v["eos"] = {1}; }), ": eos an array" + outside);
  EXPECT_EQ(message([](json& v) { v.erase("bos"); }), ": key 'bos' is missing");
  EXPECT_EQ(message([](json& v) { v["vocab"][5] = 7; }), ": a value has another type than it must have: number");
  EXPECT_EQ(message([](json& v) { v["specials"] = "x"; }), ": a value must be array, but is string");
  EXPECT_EQ(message([](json& v) { v = json::array(); }), ": not a JSON object");
  std::ofstream(path) << std::string(500000, '[');
  EXPECT_EQ(load_encoding(folder).error().message, path + ": nested deeper than 64");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(load_encoding(folder).error().message, folder.string() + ": no such folder");
  std::filesystem::create_directories(folder);
  EXPECT_EQ(load_encoding(folder).error().message,
            path + ": cannot be opened: No such file or directory; no known encoding in this folder");
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_EQ(load_encoding(folder).error().message, path + ": not a regular file; no known encoding in this folder");
  std::filesystem::remove_all(folder);
}

TEST(PhantomEncoding, IsHeldAgainstTheConfigOfItsCheckpoint) {
  const auto folder = kSource / "phantom";
  const auto good = load_model_config(folder);
  ASSERT_TRUE(good);
  EXPECT_TRUE(load_encoding(folder, *good));
  const auto message = [&](const auto& change) {
    ModelConfig config = *good;
    change(config);
    return load_encoding(folder, config).error().message.substr(folder.string().size());
  };
  EXPECT_EQ(message([](ModelConfig& c) { c.vocab_size = 1025; }),
            ": vocabulary size is 1024 in vocab.json, but 1025 in config.json");
  EXPECT_EQ(message([](ModelConfig& c) { c.bos_token_id = 1; }), ": bos is 0 in vocab.json, but 1 in config.json");
  EXPECT_EQ(message([](ModelConfig& c) { c.eos_token_id = 5; }), ": eos is 1 in vocab.json, but 5 in config.json");
}

}  // namespace
}  // namespace plumb
