#include "investigator/operator_conversation.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "investigator/prompts/v4_text.h"
#include "investigator/trial.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

constexpr std::array kRoles{"system", "developer", "user", "assistant", "tool"};
constexpr std::array kMoreFields{"tool_calls", "tool_call_id", "name"};  // of a message, passed on as they are
constexpr std::array kBodyFields{"tools", "chat_template_kwargs"};       // of the request, passed on as they are
constexpr std::size_t kLeastHostBytes = 80;  // a turn that a statement is planted in is at least so long, if one is

// Text, a list of parts of text, or nothing beside tool calls.
Result<std::string> content_of(const Json& message) {
  if (!message.contains("content") || message["content"].is_null()) return std::string();
  const Json& content = message["content"];
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return error("its content is no text");
  for (const Json& part : content) {
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string())
      return error("its content has a part that is no text; plumb replays text only");
    text += part["text"].get<std::string>();
  }
  return text;
}

Result<Message> message_of(const Json& j) {
  if (!j.is_object() || !j.contains("role") || !j["role"].is_string()) return error("it has no role");
  const auto role = j["role"].get<std::string>();
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    return error("its role '{}' is none of system, developer, user, assistant, tool", role);
  auto content = content_of(j);
  if (!content) return tl::unexpected(content.error());
  Json more = Json::object();
  for (const char* field : kMoreFields)
    if (j.contains(field) && !j[field].is_null()) more[field] = j[field];
  return Message{role, std::move(*content), more.empty() ? std::string() : more.dump()};
}

bool is_answer(const Message& m) { return m.role == "assistant" && m.more.find("tool_calls") == std::string::npos; }

// The next space at or after `at`, or the end.
std::size_t word_end(const std::string& text, std::size_t at) {
  const std::size_t space = text.find(' ', at);
  return space == std::string::npos ? text.size() : space;
}

// Puts a sentence between two words, in place of about as much text. Cuts at spaces only, so that no character breaks.
void plant(std::string& text, const std::string& sentence, Rng& rng) {
  const std::size_t room = text.size() > sentence.size() ? text.size() - sentence.size() : 0;
  const std::size_t begin = word_end(text, static_cast<std::size_t>(rng.below(room + 1)));
  const std::size_t end = word_end(text, std::min(begin + sentence.size(), text.size()));
  text.replace(begin, end - begin, (begin == 0 ? "" : " ") + sentence);
}

}  // namespace

Result<std::shared_ptr<const OperatorConversation>> OperatorConversation::parse(std::string text,
                                                                                const std::string& file_name) {
  if (text.size() > kMaxConversationBytes)
    return error("{}: {} bytes; a conversation may have {}", file_name, text.size(), kMaxConversationBytes);
  const Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded()) return error("{}: is no JSON", file_name);
  const Json messages = j.is_array() ? j : j.is_object() && j.contains("messages") ? j["messages"] : Json();
  if (!messages.is_array() || messages.empty())
    return error("{}: has no messages: give a list of them, or a request body with \"messages\"", file_name);
  if (messages.size() > kMaxConversationMessages)
    return error("{}: {} messages; a conversation may have {}", file_name, messages.size(), kMaxConversationMessages);
  auto c = std::make_shared<OperatorConversation>();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto message = message_of(messages[i]);
    if (!message) return error("{}: message {}: {}", file_name, i + 1, message.error().message);
    c->messages_.push_back(std::move(*message));
  }
  while (!c->messages_.empty() && is_answer(c->messages_.back())) c->messages_.pop_back();
  if (c->hosts().empty()) return error("{}: no message of a user before the last answer", file_name);
  Json body = Json::object();
  for (const char* field : kBodyFields)
    if (j.is_object() && j.contains(field) && !j[field].is_null()) body[field] = j[field];
  if (body.contains("tools") && body["tools"].is_array()) c->tools_ = body["tools"].size();
  c->body_ = body.empty() ? "" : body.dump();
  c->hash_ = hash_text(text);
  c->text_ = std::move(text);
  return std::shared_ptr<const OperatorConversation>(std::move(c));
}

// Turns that may state something: those of the user and of tools, the longer ones where there are any; the last one
// only when there is no other.
std::vector<std::size_t> OperatorConversation::hosts() const {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < messages_.size(); ++i)
    if (messages_[i].role == "user" || messages_[i].role == "tool") all.push_back(i);
  if (all.size() > 1 && messages_.back().role == "user") all.pop_back();
  std::vector<std::size_t> longer;
  for (const std::size_t i : all)
    if (messages_[i].content.size() >= kLeastHostBytes) longer.push_back(i);
  return longer.empty() ? all : longer;
}

std::vector<Ask> OperatorConversation::asks(const ItemId& id) const {
  Ask verbatim;
  verbatim.step = "verbatim";
  verbatim.messages = messages_;
  verbatim.body = body_;
  verbatim.max_tokens = kVerbatimTokens;
  for (const Message& m : messages_) verbatim.prompt_tokens += v4_tokens(m.content);

  Rng rng(derive_seed(id.seed, id.cell));
  Fact fact = Author(rng).fact({});
  const auto places = hosts();
  fact.turn = static_cast<int>(places[static_cast<std::size_t>(rng.below(places.size()))]);
  fact.value = written_value(fact, Wording::plain);
  const std::string key = fmt::format("the {} of \"{}\"", fact.attribute, fact.key);
  Ask planted = verbatim;
  planted.step = "planted";
  planted.max_tokens = 0;
  planted.expected = fact.value;
  planted.asked = 0;
  plant(planted.messages[static_cast<std::size_t>(fact.turn)].content,
        fmt::format("Please remember that {} is {}.", key, fact.value), rng);
  const std::string question = fmt::format("What is {}? Reply with the {} and nothing else.", key, fact.attribute);
  if (planted.messages.back().role == "user" && static_cast<int>(planted.messages.size()) - 1 != fact.turn)
    planted.messages.back().content = question;
  else
    planted.messages.push_back({"user", question});
  planted.facts = {fact};
  return {verbatim, planted};
}

std::string OperatorConversation::described() const {
  return fmt::format("{} messages, {} bytes, {} tools, xxh3 {}", messages_.size(), text_.size(), tools_, hash_);
}

Item make_conversation(const ItemId& id, int, Wording, const Shape& shape) {
  return {id, shape.conversation == nullptr ? std::vector<Ask>() : shape.conversation->asks(id)};
}

}  // namespace plumb::investigator
