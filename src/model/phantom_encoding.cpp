#include <algorithm>
#include <charconv>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/durable_file.h"
#include "model/encoding.h"
#include "model/phantom_parser.h"
#include "model/python_json.h"
#include "model/tool_results.h"
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
  bool is_read_in_answers(std::int32_t id) const override {
    return id == ids_.at("<call>") || id == ids_.at("</call>");
  }
  std::int32_t bos() const override { return bos_; }
  std::int32_t eos() const override { return eos_; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(bytes_.size()); }

  Result<std::unique_ptr<ChatPrompt>> lay_out(Conversation conversation) const override;

  /// Appends what one message is, with its role's marker and, of an assistant, its end unless it stays open.
  void append_message(const ChatMessage& message, bool open, std::vector<std::int32_t>& ids) const {
    const bool assistant = message.role == "assistant", tool = message.role == "tool";
    static const std::vector<std::int32_t> kNone;
    ids.push_back(ids_.at("<" + message.role + ">"));
    if (tool) ids.push_back(ids_.at("<result>"));
    if (assistant && !message.tool_calls.empty()) {
      append_call(message.tool_calls.front(), ids);
    } else {
      // The phantom has only seen text that starts with a space, except for a call.
      const std::string& content = message.content;
      const bool spaced = content.empty() || content[0] == ' ' || (assistant && content.starts_with("<call>"));
      append(ids, spaced ? content : " " + content, assistant ? call_markers() : kNone);
    }
    if (tool) ids.push_back(ids_.at("</result>"));
    if (assistant && !open) ids.push_back(eos_);
  }

  /// Appends the start of the assistant's turn, and of a call with it.
  void append_question(const std::string& answer_start, std::vector<std::int32_t>& ids) const {
    ids.push_back(ids_.at("<assistant>"));
    append(ids, answer_start, call_markers());
  }

 private:
  std::vector<std::int32_t> call_markers() const { return {ids_.at("<call>"), ids_.at("</call>")}; }

  void append_call(const ToolCall& call, std::vector<std::int32_t>& ids) const {
    const auto members = python_json_members(call.arguments);
    CHECK(members && members->size() == 1);
    ids.push_back(ids_.at("<call>"));
    append(ids, fmt::format(" {} {}", call.name, members->front().value), {});
    ids.push_back(ids_.at("</call>"));
  }

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

constexpr std::string_view kTools[] = {"lookup", "check"};
constexpr std::string_view kArgument = "text";

// Whether the schema of the function's argument takes every string, as far as its type says. The schema's own form was
// read when the tool was.
bool takes_string(const ChatTool& tool) {
  const json function = json::parse(tool.function, nullptr, false);
  const json* schema = &function;
  for (const std::string_view key : {std::string_view("parameters"), std::string_view("properties"), kArgument}) {
    const auto member = schema->is_object() ? schema->find(key) : schema->end();
    if (member == schema->end()) return true;
    schema = &*member;
  }
  if (!schema->is_object()) return *schema == true;
  if (schema->contains("enum") || schema->contains("const")) return false;
  const json type = schema->value("type", json("string"));
  return type == "string" || (type.is_array() && std::find(type.begin(), type.end(), "string") != type.end());
}

// The two functions it learnt, and so the only ones that need not be told to it.
Result<void> check_tool(const ChatTool& tool) {
  const bool known = std::find(std::begin(kTools), std::end(kTools), tool.name) != std::end(kTools);
  if (known && tool.properties == std::vector<std::string>{std::string(kArgument)} && takes_string(tool)) return {};
  return error(
      "tools: this model knows two functions from its training, lookup and check, each with one string "
      "\"text\"; '{}' cannot be declared to it",
      tool.name);
}

// A call is written <call> NAME TEXT</call>.
Result<void> check_call(const ChatMessage& message, std::size_t index) {
  const auto refuse = [&](std::string_view why) { return error("messages[{}].tool_calls: {}", index, why); };
  if (message.tool_calls.size() > 1) return refuse("this model's form has one call a message");
  if (!message.content.empty()) return refuse("this model's form has no place for content beside a call");
  const ToolCall& call = message.tool_calls.front();
  if (call.name.empty() || call.name.find_first_not_of(kLetters) != call.name.npos)
    return refuse("this model's form takes names of the letters a to z");
  const auto members = python_json_members(call.arguments);
  if (!members || members->size() != 1 || !members->front().is_string || members->front().key != kArgument)
    return refuse("this model's form has exactly one argument, the string \"text\"");
  return {};
}

Result<void> check_message(const ChatMessage& message, std::size_t index) {
  const std::string& role = message.role;
  if (role != "assistant" && role != "tool" && role != "user" && role != "system")
    return error(
        "messages[{}]: unknown role '{}'; known are system, user, assistant and tool, and developer at the start",
        index, role);
  const auto refuse = [&](const char* what) {
    return error("messages[{}].{}: this model's form has no place for it", index, what);
  };
  if (!message.reasoning_content.value_or("").empty()) return refuse("reasoning_content");
  if (!message.response_format.empty()) return refuse("response_format");
  if (!message.task.empty()) return refuse("task");
  if (message.without_eos) return refuse("wo_eos");
  for (const ChatTool& tool : message.tools)
    if (const auto known = check_tool(tool); !known) return error("messages[{}].{}", index, known.error().message);
  return message.tool_calls.empty() ? Result<void>() : check_call(message, index);
}

// Messages of the developer at the start are system messages, each of its own: the form has several.
void lift_developer(std::vector<ChatMessage>& messages) {
  for (ChatMessage& message : messages) {
    if (message.role != "developer" && message.role != "system") return;
    message.role = "system";
  }
}

Result<void> check_end(const Conversation& conversation) {
  const ChatMessage& last = conversation.messages.back();
  switch (conversation.continuation) {
    case Continuation::none:
      if (last.role != "assistant") return {};
      return error(
          "the last message is an assistant's: set continue_final_message (or prefix on the message) to have it "
          "continued, or send a user message");
    case Continuation::content:
      if (last.role == "assistant" && last.tool_calls.empty()) return {};
      return error("to be continued, the last message must be an assistant's without tool calls");
    case Continuation::reasoning:
      break;
  }
  return error("this model has no reasoning to continue");
}

Result<void> check(const Conversation& conversation) {
  if (conversation.messages.empty()) return error("messages: at least one is needed");
  if (conversation.thinking.value_or(false) || (!conversation.effort.empty() && conversation.effort != "none"))
    return error("thinking: this model does not think before it answers");
  if (!conversation.task.empty()) return error("task: this model has none");
  if (!conversation.literal_specials)
    return error("user_specials: in this model's form control strings inside contents are always plain text");
  for (const ChatTool& tool : conversation.tools)
    if (const auto known = check_tool(tool); !known) return known;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (const auto good = check_message(conversation.messages[i], i); !good) return good;
  return check_end(conversation);
}

// One stretch a message, and one for the assistant's turn that begins.
class PhantomPrompt final : public ChatPrompt {
 public:
  PhantomPrompt(const PhantomEncoding& encoding, Conversation conversation)
      : encoding_(encoding), conversation_(std::move(conversation)) {
    warnings_ = tool_result_warnings(conversation_.messages);
    if (conversation_.tool_choice == ToolChoice::required) answer_start_ = "<call>";
    if (conversation_.tool_choice == ToolChoice::named) answer_start_ = "<call> " + conversation_.tool_name;
  }

  std::size_t stretch_count() const override { return messages().size() + (continues() ? 0 : 1); }
  std::string key(std::size_t stretch) const override {
    if (stretch == messages().size()) return "?" + answer_start_;
    const ChatMessage& message = messages()[stretch];
    std::string out = fmt::format("{}{}{} ", stretch == 0 ? "^" : "", is_open(stretch) ? "+" : "", message.role);
    if (message.tool_calls.empty()) return out + "c" + message.content;
    return out + fmt::format("t{} {}", message.tool_calls.front().name, message.tool_calls.front().arguments);
  }
  void append_ids(std::size_t stretch, std::vector<std::int32_t>& ids) const override {
    if (stretch == 0) ids.push_back(encoding_.bos());
    if (stretch == messages().size())
      encoding_.append_question(answer_start_, ids);
    else
      encoding_.append_message(messages()[stretch], is_open(stretch), ids);
  }
  std::string role(std::size_t stretch) const override {
    return stretch == messages().size() ? "assistant" : messages()[stretch].role;
  }
  std::unique_ptr<ReplyParser> reply_parser(ReplyOptions asked) const override {
    asked.tools = conversation_.tools;
    for (const ChatMessage& message : messages())
      asked.tools.insert(asked.tools.end(), message.tools.begin(), message.tools.end());
    asked.tools_active = !asked.tools.empty() && conversation_.tool_choice != ToolChoice::none;
    return phantom_reply_parser(std::move(asked));
  }

 private:
  const std::vector<ChatMessage>& messages() const { return conversation_.messages; }
  bool continues() const { return conversation_.continuation != Continuation::none; }
  bool is_open(std::size_t stretch) const { return continues() && stretch + 1 == messages().size(); }

  const PhantomEncoding& encoding_;
  const Conversation conversation_;
};

Result<std::unique_ptr<ChatPrompt>> PhantomEncoding::lay_out(Conversation conversation) const {
  if (conversation.developer_is_system) lift_developer(conversation.messages);
  if (const auto good = check(conversation); !good) return tl::unexpected(good.error());
  return std::make_unique<PhantomPrompt>(*this, std::move(conversation));
}

}  // namespace

Result<std::unique_ptr<Encoding>> load_phantom_encoding(const std::filesystem::path& folder) {
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

}  // namespace plumb
