#include "model/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/pre_tokenizer.h"
#include "tensor/strict_json.h"

namespace plumb {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxIds = 1 << 20;

struct Refused {
  std::string why;
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Refused{fmt::format(format, std::forward<Args>(args)...)};
}

/// Byte-level vocabularies spell bytes as printable characters: a byte that is printable in Latin-1 as the code point
/// of its value, the others, in order, from U+0100 on.
constexpr std::size_t kByteCharacters = 0x144;
std::array<int, kByteCharacters> byte_of_character() {
  std::array<int, kByteCharacters> bytes;
  bytes.fill(-1);
  std::size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    bytes[printable ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return bytes;
}

/// The bytes that a token of the vocabulary spells; nothing when it has another character in it.
std::optional<std::string> spelt_bytes(std::string_view text) {
  static const auto kBytes = byte_of_character();
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t code = static_cast<unsigned char>(text[i]);
    if (code >= 0x80) {  // JSON is UTF-8; all that is wanted has two bytes
      if (code >= 0xE0) return std::nullopt;
      code = (code & 0x1F) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F);
    }
    if (code >= kByteCharacters || kBytes[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[code]));
  }
  return bytes;
}

/// Reads one file. Every method throws Refused, or json::exception where a value is missing or of another type.
class Reader {
 public:
  TokenizerTables read(const json& file) {
    known_keys(file, "",
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
    expect(file, "", "version", {"1.0"});
    expect(file, "", "truncation", {nullptr}, nullptr);
    expect(file, "", "padding", {nullptr}, nullptr);
    check_normalizer(file.value("normalizer", json()));
    check_pre_tokenizer(file.at("pre_tokenizer"));
    if (file.contains("post_processor") && !file["post_processor"].is_null())
      check_byte_level(file["post_processor"], "post_processor.");
    check_byte_level(file.at("decoder"), "decoder.");
    const json& model = file.at("model");
    check_model(model);
    read_added(file.at("added_tokens"));
    read_vocabulary(model.at("vocab"));
    read_merges(model.at("merges"));
    return std::move(tables_);
  }

 private:
  static void known_keys(const json& object, const std::string& path, const std::vector<std::string>& known) {
    if (!object.is_object())
      refuse("{} is not an object", path.empty() ? "the document" : path.substr(0, path.size() - 1));
    for (const auto& [key, value] : object.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        refuse("{}{} is not known here, so its meaning would be lost", path, shown(key));
  }

  /// That `key` has one of the values; `absent` is what a missing one stands for, else it must be there.
  static void expect(const json& object, const std::string& path, const char* key, const std::vector<json>& allowed,
                     const std::optional<json>& absent = std::nullopt) {
    const json& value = absent && !object.contains(key) ? *absent : object.at(key);
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
    std::string names;
    for (const json& one : allowed) names += (names.empty() ? "" : " or ") + shown(one);
    refuse("{}{} is {}; supported is {}", path, key, shown(value), names);
  }

  /// As post-processor and decoder, the flags move offsets only, which nobody asks for here.
  static void check_byte_level(const json& part, const std::string& path) {
    known_keys(part, path, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    expect(part, path, "type", {"ByteLevel"});
    for (const char* flag : {"add_prefix_space", "trim_offsets", "use_regex"})
      expect(part, path, flag, {true, false}, true);
  }

  static void check_normalizer(const json& part) {
    if (part.is_null()) return;
    expect(part, "normalizer.", "type", {"Sequence"});
    known_keys(part, "normalizer.", {"type", "normalizers"});
    if (part.at("normalizers") != json::array()) refuse("normalizer.normalizers is not empty; none is supported");
  }

  static void check_pre_tokenizer(const json& part) {
    const std::string path = "pre_tokenizer.";
    known_keys(part, path, {"type", "pretokenizers"});
    expect(part, path, "type", {"Sequence"});
    const json& steps = part.at("pretokenizers");
    constexpr std::size_t kSplits = std::size(kDeepSeekSplits);
    if (!steps.is_array() || steps.size() != kSplits + 1)
      refuse("pre_tokenizer.pretokenizers is {}; supported are DeepSeek's {} Split steps and a ByteLevel step",
             steps.is_array() ? fmt::format("a list of {}", steps.size()) : shown(steps), kSplits);
    for (std::size_t i = 0; i < kSplits; ++i) {
      const std::string step = fmt::format("pre_tokenizer.pretokenizers[{}].", i);
      known_keys(steps[i], step, {"type", "pattern", "behavior", "invert"});
      expect(steps[i], step, "type", {"Split"});
      known_keys(steps[i].at("pattern"), step + "pattern.", {"Regex"});
      expect(steps[i].at("pattern"), step + "pattern.", "Regex", {kDeepSeekSplits[i]});
      expect(steps[i], step, "behavior", {"Isolated"});
      expect(steps[i], step, "invert", {false});
    }
    const std::string step = fmt::format("pre_tokenizer.pretokenizers[{}].", kSplits);
    check_byte_level(steps[kSplits], step);
    expect(steps[kSplits], step, "add_prefix_space", {false}, true);
    expect(steps[kSplits], step, "use_regex", {false}, true);
  }

  static void check_model(const json& model) {
    const std::string path = "model.";
    known_keys(model, path,
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    expect(model, path, "type", {"BPE"});
    expect(model, path, "dropout", {nullptr}, nullptr);
    expect(model, path, "unk_token", {nullptr}, nullptr);
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
      expect(model, path, affix, {nullptr, ""}, nullptr);
    for (const char* flag : {"fuse_unk", "byte_fallback", "ignore_merges"}) expect(model, path, flag, {false}, false);
  }

  static std::int32_t read_id(const json& value, const std::string& token) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= kMaxIds)
      refuse("the id of token {} is {}, not an integer in [0, {})", shown(token), shown(value), kMaxIds);
    return value.get<std::int32_t>();
  }

  void read_added(const json& list) {
    if (!list.is_array()) refuse("added_tokens is {}, not a list", shown(list));
    std::unordered_set<std::int32_t> ids;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string path = fmt::format("added_tokens[{}].", i);
      known_keys(list[i], path, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) expect(list[i], path, flag, {false});
      expect(list[i], path, "special", {true, false});
      const auto& text = list[i].at("content").get_ref<const std::string&>();
      const std::int32_t id = read_id(list[i].at("id"), text);
      if (text.empty()) refuse("{}content is empty", path);
      if (!added_ids_.try_emplace(text, id).second) refuse("{}content: {} is listed twice", path, shown(text));
      if (!ids.insert(id).second) refuse("{}id: {} belongs to two tokens", path, id);
      tables_.added.push_back({id, text, list[i].at("normalized").get<bool>()});
      reserve(id);
    }
  }

  void read_vocabulary(const json& vocab) {
    if (!vocab.is_object()) refuse("model.vocab is {}, not an object", shown(vocab));
    ids_.reserve(vocab.size());
    std::vector<bool> added(kMaxIds);
    for (const AddedToken& token : tables_.added) added[static_cast<std::size_t>(token.id)] = true;
    for (const auto& [text, value] : vocab.get_ref<const json::object_t&>()) {
      const std::int32_t id = read_id(value, text);
      if (const auto same = added_ids_.find(text); same != added_ids_.end()) {
        if (same->second == id) continue;
        refuse("token {} has id {} in model.vocab, but {} in added_tokens", shown(text), id, same->second);
      }
      auto bytes = spelt_bytes(text);
      if (!bytes || bytes->empty())
        refuse("model.vocab: token {} is neither spelt in the byte alphabet nor an added token", shown(text));
      reserve(id);
      std::string& place = tables_.vocabulary[static_cast<std::size_t>(id)];
      if (!place.empty() || added[static_cast<std::size_t>(id)])
        refuse("model.vocab: id {} of token {} belongs to another token, too", id, shown(text));
      place = *std::move(bytes);
      ids_.emplace(text, id);
    }
    std::array<bool, 256> there{};
    for (const std::string& bytes : tables_.vocabulary)
      if (bytes.size() == 1) there[static_cast<unsigned char>(bytes[0])] = true;
    for (std::size_t byte = 0; byte < there.size(); ++byte)
      if (!there[byte]) refuse("model.vocab: byte 0x{:02X} has no token, so it would be lost", byte);
  }

  /// The id of a spelling that merge `rank` names. An added token has none here: no merge may make one out of plain
  /// text.
  std::int32_t merged_id(std::string_view text, std::size_t rank) const {
    const auto found = ids_.find(text);
    if (found == ids_.end())
      refuse("model.merges[{}]: {} is no ordinary token of model.vocab", rank, shown(std::string(text)));
    return found->second;
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) refuse("model.merges is {}, not a list", shown(merges));
    std::unordered_set<std::uint64_t> pairs;
    pairs.reserve(merges.size());
    tables_.merges.reserve(merges.size());
    std::string both;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = halves(merges[rank], rank);
      both.assign(left).append(right);
      const Merge merge{merged_id(left, rank), merged_id(right, rank), merged_id(both, rank)};
      if (!pairs.insert(static_cast<std::uint64_t>(merge.left) << 32 | static_cast<std::uint64_t>(merge.right)).second)
        refuse("model.merges[{}]: {} and {} are merged by an earlier entry, too", rank, shown(std::string(left)),
               shown(std::string(right)));
      tables_.merges.push_back(merge);
    }
  }

  static std::pair<std::string_view, std::string_view> halves(const json& merge, std::size_t rank) {
    if (merge.is_array() && merge.size() == 2)
      return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
    if (!merge.is_string()) refuse("model.merges[{}] is {}, not a string or a pair of strings", rank, shown(merge));
    const std::string_view text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos)
      refuse("model.merges[{}]: {} is not two tokens with one space between", rank, shown(merge));
    return {text.substr(0, space), text.substr(space + 1)};
  }

  void reserve(std::int32_t id) {
    const auto size = static_cast<std::size_t>(id) + 1;
    if (tables_.vocabulary.size() < size) tables_.vocabulary.resize(size);
  }

  TokenizerTables tables_;
  std::unordered_map<std::string_view, std::int32_t> added_ids_, ids_;  // by spelling, as the file's JSON holds it
};

}  // namespace

Result<TokenizerTables> read_tokenizer_json(std::string_view text, const std::string& where) {
  const auto file = parse_json_strictly(text, where);
  if (!file) return tl::unexpected(file.error());
  try {
    return Reader().read(*file);
  } catch (const Refused& refused) {
    return error("{}: {}", where, refused.why);
  } catch (const json::exception& e) {
    return error("{}: {}", where, json_complaint(e));
  }
}

}  // namespace plumb
