#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/tokenizer.h"

using namespace plumb;
using nlohmann::json;

namespace {

/// The 256 bytes in their spelling, twelve merges, and added tokens of both kinds that overlap.
std::string small_tokenizer() {
  json vocab;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int code = printable ? byte : next++;
    std::string spelling(1, static_cast<char>(code));
    if (code >= 0x80) spelling = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    vocab[spelling] = byte;
  }
  json merges = json::array();
  for (const auto& [left, right] : {std::pair{"Ġ", "Ġ"},
                                    {"a", "b"},
                                    {"b", "c"},
                                    {"ab", "c"},
                                    {"a", "bc"},
                                    {"Ġ", "ab"},
                                    {"a", "a"},
                                    {"aa", "aa"},
                                    {"Ã", "©"},
                                    {"Ċ", "Ċ"},
                                    {"1", "2"},
                                    {"!", "!"}}) {
    merges += {left, right};
    vocab.emplace(std::string(left) + right, static_cast<int>(vocab.size()));
  }
  json added = json::array();
  for (const auto& [text, normalized] : {std::pair{"<a>", false}, {"<a", true}, {"><b", true}, {"<｜b｜>", false}})
    added += {{"id", 300 + added.size()}, {"content", text},          {"single_word", false},  {"lstrip", false},
              {"rstrip", false},          {"normalized", normalized}, {"special", !normalized}};
  const json file = json::parse(R"({"version": "1.0", "normalizer": null, "pre_tokenizer": {"type": "Sequence",
    "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
      {"type": "Split", "pattern": {"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "behavior": "Isolated", "invert": false},
      {"type": "Split", "pattern": {"Regex": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
       "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE"}})");
  json full = file;
  full["added_tokens"] = added;
  full["model"]["vocab"] = vocab;
  full["model"]["merges"] = merges;
  return full.dump();
}

/// The tokens of any text, joined, are the text; special tokens come of their text only, and only when asked for.
void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  const auto parsed = tokenizer.encode(text, Specials::parse), plain = tokenizer.encode(text, Specials::plain);
  bool any = false;
  for (const auto* ids : {&parsed, &plain}) {
    std::string joined;
    for (const std::int32_t id : *ids) {
      CHECK(0 <= id && id < tokenizer.vocab_size());
      joined += tokenizer.token_bytes(id);
      any = any || tokenizer.is_special(id);
      CHECK(ids == &parsed || !tokenizer.is_special(id));
    }
    CHECK(joined == text);
  }
  CHECK(any || parsed == plain);
}

}  // namespace

// A text that starts with '{' is a tokenizer.json, which gives a message or a tokenizer that keeps its promises; any
// other is a text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer kSmall = [] {
    auto small = Tokenizer::parse(small_tokenizer(), "small");
    CHECK(small);
    return *std::move(small);
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_round_trip(kSmall, text);
  if (!text.starts_with('{')) return 0;
  const auto tokenizer = Tokenizer::parse(text, "fuzz");
  if (!tokenizer) {
    CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  check_round_trip(*tokenizer, text);
  for (std::int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    if (const std::string bytes = tokenizer->token_bytes(id); !bytes.empty() && !tokenizer->is_special(id))
      check_round_trip(*tokenizer, bytes);
  return 0;
}
