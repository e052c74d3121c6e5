#include "model/tokenizer.h"

#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace plumb {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::filesystem::path kGolden = std::filesystem::path(PLUMB_SOURCE_DIR) / "tests/golden/tokenizer";

json read_json(const std::filesystem::path& path) {
  std::ifstream file(kGolden / path);  // an absolute path stays
  return json::parse(file);
}

const Tokenizer& small() {
  static const auto tokenizer = Tokenizer::load(kGolden / "tokenizer.json");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

std::string joined(const Tokenizer& tokenizer, const Ids& ids) {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

TEST(Tokenizer, EqualsHuggingFaceOnGoldenTexts) {
  const json vectors = read_json("encode.json");
  ASSERT_GE(vectors.size(), 600u);
  for (const json& vector : vectors) {
    const auto text = vector["text"].get<std::string>();
    ASSERT_EQ(small().encode(text, Specials::parse), vector["parse"].get<Ids>()) << vector["text"];
    ASSERT_EQ(small().encode(text, Specials::plain), vector["plain"].get<Ids>()) << vector["text"];
  }
}

// Its special tokens come first and are part of the vocabulary, too; its merges are those of prompt words.
TEST(Tokenizer, EqualsHuggingFaceWithThePhantomsVocabulary) {
  const std::filesystem::path root = PLUMB_SOURCE_DIR;
  const auto tokenizer = Tokenizer::load(root / "phantom/v4/tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 1536);
  const json vectors = read_json(root / "tests/golden/phantom-v4/encode.json");
  ASSERT_GE(vectors.size(), 400u);
  for (const json& vector : vectors) {
    const auto text = vector["text"].get<std::string>();
    ASSERT_EQ(tokenizer->encode(text, Specials::parse), vector["parse"].get<Ids>()) << vector["text"];
    ASSERT_EQ(tokenizer->encode(text, Specials::plain), vector["plain"].get<Ids>()) << vector["text"];
    ASSERT_EQ(joined(*tokenizer, tokenizer->encode(text, Specials::plain)), text);
  }
}

TEST(Tokenizer, IsLosslessOnAnyBytes) {
  Rng rng{11};
  const std::string parts[] = {"<think>", "｜DSML｜", "\xEF\xBD", " the ",       "\xF0\x9F\x98",
                               "12345",   "\r\n",     "漢字かな", "\xED\xA0\x80"};
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (std::uint64_t n = rng.below(40); n > 0; --n)
      if (rng.below(3) == 0)
        text += parts[rng.below(std::size(parts))];
      else
        text.push_back(static_cast<char>(rng.below(256)));
    for (const Specials specials : {Specials::parse, Specials::plain})
      ASSERT_EQ(joined(small(), small().encode(text, specials)), text) << "text " << i;
  }
}

// What a user writes must not be able to end a turn.
TEST(Tokenizer, PlainTextHasNoSpecialTokens) {
  std::string all;
  std::int64_t specials = 0;
  for (std::int32_t id = 0; id < small().vocab_size(); ++id)
    if (small().is_special(id)) all += small().token_bytes(id), ++specials;
  EXPECT_EQ(specials, 55);
  for (const std::int32_t id : small().encode(all, Specials::plain)) ASSERT_FALSE(small().is_special(id)) << id;
  const Ids parsed = small().encode(all, Specials::parse);
  EXPECT_EQ(static_cast<std::int64_t>(parsed.size()), specials);
  for (const std::int32_t id : parsed) ASSERT_TRUE(small().is_special(id)) << id;
}

TEST(Tokenizer, KnowsItsTokens) {
  EXPECT_EQ(small().vocab_size(), 1076);
  EXPECT_EQ(small().id_of("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(small().token_bytes(0), "<｜begin▁of▁sentence｜>");
  EXPECT_EQ(small().id_of("no such token"), std::nullopt);
  EXPECT_EQ(small().id_of(""), std::nullopt);
  std::set<std::string> seen;
  for (std::int32_t id = 0; id < small().vocab_size(); ++id) {
    EXPECT_EQ(small().id_of(small().token_bytes(id)), id);
    seen.insert(small().token_bytes(id));
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), small().vocab_size());
  for (int byte = 0; byte < 256; ++byte) EXPECT_TRUE(small().id_of(std::string(1, static_cast<char>(byte)))) << byte;
}

json small_json() {
  static const json file = read_json("tokenizer.json");
  return file;
}

Result<Tokenizer> parsed(const json& file) { return Tokenizer::parse(file.dump(), "t.json"); }

json added(int id, const std::string& content, bool normalized) {
  return {{"id", id},        {"content", content},       {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", normalized}, {"special", false}};
}

TEST(Tokenizer, AddedTokensAreFoundLeftmostThenLongest) {
  json file = small_json();
  file["added_tokens"] += added(2000, "<ab>", true);
  file["added_tokens"] += added(2001, "<ab", true);
  file["added_tokens"] += added(2002, "b><think", true);
  file["added_tokens"] += added(2003, "<a", true);
  const auto tokenizer = parsed(file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::int32_t think = *tokenizer->id_of("<think>"), close = *tokenizer->id_of(">");
  EXPECT_EQ(tokenizer->encode("<ab><think>", Specials::parse), (Ids{2000, think}));
  EXPECT_EQ(tokenizer->encode("<ab<a<ab>", Specials::parse), (Ids{2001, 2003, 2000}));
  EXPECT_EQ(tokenizer->encode("b><think>", Specials::parse), (Ids{2002, close}));
  EXPECT_EQ(tokenizer->vocab_size(), 2004);
  EXPECT_EQ(tokenizer->token_bytes(1500), "");
  EXPECT_FALSE(tokenizer->is_special(1500));
}

// Hugging Face's order: those with normalized:false come out of the whole text before the others are looked for.
TEST(Tokenizer, UnnormalizedAddedTokensComeFirst) {
  json file = small_json();
  file["added_tokens"] += added(2000, "zyx", true);
  file["added_tokens"] += added(2001, "yxw", false);
  const auto tokenizer = parsed(file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("zyxw", Specials::parse), (Ids{*tokenizer->id_of("z"), 2001}));
  EXPECT_EQ(tokenizer->encode("zyxzyxw", Specials::parse), (Ids{2000, *tokenizer->id_of("z"), 2001}));
}

TEST(Tokenizer, ReadsMergesOfBothForms) {
  json file = small_json();
  ASSERT_TRUE(file["model"]["merges"][0].is_array());
  for (json& merge : file["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto tokenizer = parsed(file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string text = "Reading the same merges, written differently.";
  EXPECT_EQ(tokenizer->encode(text, Specials::parse), small().encode(text, Specials::parse));
}

struct Refusal {
  const char* name;
  std::function<void(json&)> change;
  const char* message;
};

class TokenizerRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(TokenizerRefusals, SayWhatIsNotSupported) {
  json file = small_json();
  GetParam().change(file);
  const auto tokenizer = parsed(file);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().message, GetParam().message);
}

json& step(json& file, int i) { return file["pre_tokenizer"]["pretokenizers"][i]; }

const Refusal kRefusals[] = {
    {"UnknownKey", [](json& f) { f["extra"] = 1; },
     "t.json: \"extra\" is not known here, so its meaning would be lost"},
    {"Version", [](json& f) { f["version"] = "2.0"; }, "t.json: version is \"2.0\"; supported is \"1.0\""},
    {"Truncation", [](json& f) { f["truncation"] = {{"max_length", 8}}; },
     "t.json: truncation is an object; supported is null"},
    {"Normalizer", [](json& f) { f["normalizer"] = {{"type", "NFC"}}; },
     "t.json: normalizer.type is \"NFC\"; supported is \"Sequence\""},
    {"NormalizerSequence", [](json& f) { f["normalizer"]["normalizers"] += {{"type", "NFC"}}; },
     "t.json: normalizer.normalizers is not empty; none is supported"},
    {"NoPreTokenizer", [](json& f) { f.erase("pre_tokenizer"); }, "t.json: key 'pre_tokenizer' is missing"},
    {"PreTokenizerType", [](json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; },
     "t.json: pre_tokenizer.type is \"Whitespace\"; supported is \"Sequence\""},
    {"PreTokenizerSteps", [](json& f) { f["pre_tokenizer"]["pretokenizers"].erase(1); },
     "t.json: pre_tokenizer.pretokenizers is a list of 3; supported are DeepSeek's 3 Split steps and a ByteLevel step"},
    {"Pattern", [](json& f) { step(f, 0)["pattern"]["Regex"] = "\\p{N}{1,2}"; },
     R"(t.json: pre_tokenizer.pretokenizers[0].pattern.Regex is "\\p{N}{1,2}"; supported is "\\p{N}{1,3}")"},
    {"PatternKind", [](json& f) { step(f, 0)["pattern"] = {{"String", " "}}; },
     "t.json: pre_tokenizer.pretokenizers[0].pattern.\"String\" is not known here, so its meaning would be lost"},
    {"Behavior", [](json& f) { step(f, 1)["behavior"] = "Removed"; },
     "t.json: pre_tokenizer.pretokenizers[1].behavior is \"Removed\"; supported is \"Isolated\""},
    {"Invert", [](json& f) { step(f, 2)["invert"] = true; },
     "t.json: pre_tokenizer.pretokenizers[2].invert is true; supported is false"},
    {"PrefixSpace", [](json& f) { step(f, 3)["add_prefix_space"] = true; },
     "t.json: pre_tokenizer.pretokenizers[3].add_prefix_space is true; supported is false"},
    {"UsesRegexByDefault", [](json& f) { step(f, 3).erase("use_regex"); },
     "t.json: pre_tokenizer.pretokenizers[3].use_regex is true; supported is false"},
    {"PostProcessor", [](json& f) { f["post_processor"] = {{"type", "TemplateProcessing"}}; },
     "t.json: post_processor.type is \"TemplateProcessing\"; supported is \"ByteLevel\""},
    {"Decoder", [](json& f) { f["decoder"]["type"] = "Metaspace"; },
     "t.json: decoder.type is \"Metaspace\"; supported is \"ByteLevel\""},
    {"NullDecoder", [](json& f) { f["decoder"] = nullptr; }, "t.json: decoder is not an object"},
    {"Model", [](json& f) { f["model"]["type"] = "Unigram"; },
     "t.json: model.type is \"Unigram\"; supported is \"BPE\""},
    {"Dropout", [](json& f) { f["model"]["dropout"] = 0.1; }, "t.json: model.dropout is 0.1; supported is null"},
    {"UnknownToken", [](json& f) { f["model"]["unk_token"] = "?"; },
     "t.json: model.unk_token is \"?\"; supported is null"},
    {"Prefix", [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; },
     "t.json: model.continuing_subword_prefix is \"##\"; supported is null or \"\""},
    {"ByteFallback", [](json& f) { f["model"]["byte_fallback"] = true; },
     "t.json: model.byte_fallback is true; supported is false"},
    {"IgnoreMerges", [](json& f) { f["model"]["ignore_merges"] = true; },
     "t.json: model.ignore_merges is true; supported is false"},
    {"AddedStrip", [](json& f) { f["added_tokens"][5]["lstrip"] = true; },
     "t.json: added_tokens[5].lstrip is true; supported is false"},
    {"AddedTwice", [](json& f) { f["added_tokens"] += added(2000, "<think>", true); },
     "t.json: added_tokens[55].content: \"<think>\" is listed twice"},
    {"AddedIdTwice", [](json& f) { f["added_tokens"] += added(1, "x<", true); },
     "t.json: added_tokens[55].id: 1 belongs to two tokens"},
    {"AddedEmpty", [](json& f) { f["added_tokens"] += added(2000, "", true); },
     "t.json: added_tokens[55].content is empty"},
    {"AddedIdIsTaken", [](json& f) { f["added_tokens"] += added(3, "x<", true); },
     "t.json: model.vocab: id 3 of token \"!\" belongs to another token, too"},
    {"AddedWithTwoIds", [](json& f) { f["added_tokens"][0]["id"] = 2000; },
     "t.json: token \"<｜begin▁of▁sentence｜>\" has id 0 in model.vocab, but 2000 in added_tokens"},
    {"IdTwice", [](json& f) { f["model"]["vocab"]["\""] = 3; },
     "t.json: model.vocab: id 3 of token \"\\\"\" belongs to another token, too"},
    {"IdTooHigh", [](json& f) { f["model"]["vocab"]["!"] = 1 << 20; },
     "t.json: the id of token \"!\" is 1048576, not an integer in [0, 1048576)"},
    {"IdNegative", [](json& f) { f["model"]["vocab"]["!"] = -1; },
     "t.json: the id of token \"!\" is -1, not an integer in [0, 1048576)"},
    {"NotSpeltInBytes", [](json& f) { f["model"]["vocab"]["！"] = 2000; },
     "t.json: model.vocab: token \"！\" is neither spelt in the byte alphabet nor an added token"},
    {"EmptyToken", [](json& f) { f["model"]["vocab"][""] = 2000; },
     "t.json: model.vocab: token \"\" is neither spelt in the byte alphabet nor an added token"},
    {"MissingByte", [](json& f) { f["model"]["vocab"].erase("!"); },
     "t.json: model.vocab: byte 0x21 has no token, so it would be lost"},
    {"MergeOfUnknown", [](json& f) { f["model"]["merges"][7] = {"!", "unheard"}; },
     "t.json: model.merges[7]: \"unheard\" is no ordinary token of model.vocab"},
    {"MergeIntoUnknown", [](json& f) { f["model"]["merges"][7] = "! !"; },
     "t.json: model.merges[7]: \"!!\" is no ordinary token of model.vocab"},
    {"MergeIntoSpecial",
     [](json& f) {
       f["model"]["vocab"]["!!"] = 2000;
       f["added_tokens"] += added(2000, "!!", true);
       f["model"]["merges"] += {"!", "!"};
     },
     "t.json: model.merges[765]: \"!!\" is no ordinary token of model.vocab"},
    {"MergeTwice", [](json& f) { f["model"]["merges"] += f["model"]["merges"][0]; },
     "t.json: model.merges[765]: \"Ġ\" and \"Ġ\" are merged by an earlier entry, too"},
    {"MergeOfThree", [](json& f) { f["model"]["merges"][7] = "a b c"; },
     "t.json: model.merges[7]: \"a b c\" is not two tokens with one space between"},
    {"MergeOfNumbers", [](json& f) { f["model"]["merges"][7] = 7; },
     "t.json: model.merges[7] is 7, not a string or a pair of strings"},
};
INSTANTIATE_TEST_SUITE_P(Files, TokenizerRefusals, testing::ValuesIn(kRefusals),
                         [](const auto& refusal) { return refusal.param.name; });

TEST(TokenizerRefusals, BadFilesAreNamed) {
  const auto none = Tokenizer::load(kGolden / "none.json");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("none.json"), std::string::npos) << none.error().message;
  EXPECT_EQ(Tokenizer::parse("[]", "t.json").error().message, "t.json: the document is not an object");
  EXPECT_EQ(Tokenizer::parse("{", "t.json").error().message.find("t.json: not valid JSON"), 0u);
}

}  // namespace
}  // namespace plumb
