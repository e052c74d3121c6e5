#include "model/encoding.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/durable_file.h"
#include "model/config.h"
#include "tensor/strict_json.h"

namespace plumb {
namespace {

using nlohmann::json;
constexpr std::string_view kPhantomType = "phantom-word-byte-v0";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
constexpr std::size_t kMaxVocabBytes = 1 << 20;
constexpr const char* kChatTokens[] = {"<system>", "<user>",  "<assistant>", "<tool>",
                                       "<call>",   "</call>", "<result>",    "</result>"};

/// Profile phantom-v0, all of it from vocab.json: special tokens, the 256 bytes as "<0x41>", words with their leading
/// space, unused ids. Text: a special token's text, else ' ' and a maximal run of a-z that is a word, else bytes.
class PhantomEncoding final : public Encoding {
 public:
  /// Throws json::exception where a field is missing or has another type; otherwise a complaint, or nothing.
  std::string read(const json& vocab) {
    const auto specials = vocab.at("specials").get<std::vector<std::string>>();
    for (const json& item : vocab.at("vocab")) {
      const auto& token = item.get_ref<const std::string&>();
      const auto id = static_cast<std::int32_t>(bytes_.size());
      if (!ids_.try_emplace(token, id).second) return fmt::format("token '{}' is listed twice", token);
      unsigned byte = 0;
      if (std::find(specials.begin(), specials.end(), token) != specials.end()) {
        specials_.push_back(id);
        bytes_.push_back(token);
      } else if (token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
                 std::from_chars(&token[3], &token[5], byte, 16).ptr == &token[5]) {
        byte_ids_[byte] = id;
        bytes_.emplace_back(1, static_cast<char>(byte));
      } else if (token.size() > 1 && token[0] == ' ' && token.find_first_not_of(kLetters, 1) == token.npos) {
        bytes_.push_back(token);
      } else if (token.starts_with("<unused")) {
        bytes_.emplace_back();
      } else {
        return fmt::format("token '{}' is no special token, byte, word or unused id", token);
      }
    }
    for (const auto& [key, id] : {std::pair{"bos", &bos_}, std::pair{"eos", &eos_}}) {
      const json& value = vocab.at(key);
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= bytes_.size())
        return fmt::format("{} {} is not an integer in [0, {})", key, shown(value), bytes_.size());
      *id = value.get<std::int32_t>();
    }
    return complaint(specials.size());
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    append(ids, text, specials_);
    return ids;
  }
  std::string token_bytes(std::int32_t id) const override {
    CHECK(id >= 0 && id < vocab_size());
    return bytes_[id];
  }
  bool is_special(std::int32_t id) const override {
    return std::find(specials_.begin(), specials_.end(), id) != specials_.end();
  }
  std::int32_t bos() const override { return bos_; }
  std::int32_t eos() const override { return eos_; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(bytes_.size()); }

  Result<std::vector<std::int32_t>> render_chat(std::span<const ChatMessage> messages) const override {
    if (messages.empty()) return error("messages: at least one is needed");
    const std::vector<std::int32_t> none, calls{ids_.at("<call>"), ids_.at("</call>")};
    std::vector<std::int32_t> ids{bos_};
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const std::string &role = messages[i].role, &content = messages[i].content;
      const bool assistant = role == "assistant", tool = role == "tool";
      if (!assistant && !tool && role != "user" && role != "system")
        return error("messages[{}]: unknown role '{}'; known are system, user, assistant and tool", i, role);
      ids.push_back(ids_.at("<" + role + ">"));
      if (tool) ids.push_back(ids_.at("<result>"));
      // The phantom has only seen text that starts with a space, except for a call.
      const bool spaced = content.empty() || content[0] == ' ' || (assistant && content.starts_with("<call>"));
      append(ids, spaced ? content : " " + content, assistant ? calls : none);
      if (tool) ids.push_back(ids_.at("</result>"));
      if (assistant) ids.push_back(eos_);
    }
    ids.push_back(ids_.at("<assistant>"));
    return ids;
  }

 private:
  /// What the rules need and the vocabulary lacks; empty when it is complete.
  std::string complaint(std::size_t special_count) const {
    if (specials_.size() != special_count) return "a special token is not in the vocabulary";
    for (std::size_t byte = 0; byte < 256; ++byte)
      if (byte_ids_[byte] < 0) return fmt::format("byte 0x{:02X} is not in the vocabulary", byte);
    for (const char* token : kChatTokens)
      if (const auto at = ids_.find(token); at == ids_.end() || !is_special(at->second))
        return fmt::format("'{}' is not a special token", token);
    if (!is_special(bos_) || !is_special(eos_)) return "bos or eos is not the id of a special token";
    return {};
  }

  /// Encodes `text`; only `allowed` special tokens are seen as such, the text of others is plain bytes.
  void append(std::vector<std::int32_t>& ids, std::string_view text, const std::vector<std::int32_t>& allowed) const {
    while (!text.empty()) {
      const auto starts = [&](std::int32_t id) { return text.starts_with(bytes_[id]); };
      if (const auto special = std::find_if(allowed.begin(), allowed.end(), starts); special != allowed.end()) {
        ids.push_back(*special);
        text.remove_prefix(bytes_[*special].size());
        continue;
      }
      std::size_t length = 1;
      while (text[0] == ' ' && length < text.size() && text[length] >= 'a' && text[length] <= 'z') ++length;
      const auto word = length > 1 ? ids_.find(std::string(text.substr(0, length))) : ids_.end();
      if (word != ids_.end()) ids.push_back(word->second);
      for (std::size_t i = 0; word == ids_.end() && i < length; ++i)
        ids.push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
      text.remove_prefix(length);
    }
  }

  std::vector<std::string> bytes_;  // by id
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::int32_t> specials_;
  std::vector<std::int32_t> byte_ids_ = std::vector<std::int32_t>(256, -1);
  std::int32_t bos_ = -1, eos_ = -1;
};
}  // namespace

Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder) {
  if (const auto there = check_folder(folder); !there) return tl::unexpected(there.error());
  const std::string path = (folder / "vocab.json").string();
  const auto text = read_file(path, kMaxVocabBytes);
  if (!text) return error("{}; no known encoding in this folder", text.error().message);
  const auto vocab = parse_json_strictly(*text, path);
  if (!vocab) return tl::unexpected(vocab.error());
  if (!vocab->is_object()) return error("{}: not a JSON object", path);
  auto encoding = std::make_unique<PhantomEncoding>();
  try {
    if (vocab->at("type") != kPhantomType) return error("{}: type is not \"{}\"", path, kPhantomType);
    if (const std::string bad = encoding->read(*vocab); !bad.empty()) return error("{}: {}", path, bad);
  } catch (const json::exception& e) {
    return error("{}: {}", path, json_complaint(e));
  }
  return encoding;
}

Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder, const ModelConfig& config) {
  auto encoding = load_encoding(folder);
  if (!encoding) return encoding;
  struct Pair {
    const char* what;
    std::int64_t vocabulary, config;
  };
  const Encoding& loaded = **encoding;
  for (const Pair& pair :
       {Pair{"vocabulary size", loaded.vocab_size(), config.vocab_size}, Pair{"bos", loaded.bos(), config.bos_token_id},
        Pair{"eos", loaded.eos(), config.eos_token_id}})
    if (pair.vocabulary != pair.config)
      return error("{}: {} is {} in vocab.json, but {} in config.json", folder.string(), pair.what, pair.vocabulary,
                   pair.config);
  return encoding;
}

}  // namespace plumb
