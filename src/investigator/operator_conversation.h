#pragma once

// The operator's own conversation as a probe: replayed as it is, and as a skeleton with a code planted in it.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "investigator/probes.h"

namespace plumb::investigator {

inline constexpr const char* kConversationCell = "conversation";
inline constexpr std::size_t kMaxConversationBytes = 8u << 20;
inline constexpr std::size_t kMaxConversationMessages = 4096;
inline constexpr int kVerbatimTokens = 128;  // max_tokens of the verbatim replay

/// A conversation as the OpenAI API has it: a request body with "messages" (and "tools", "chat_template_kwargs"), or
/// the list of messages alone. Answers that it ends with are left out: they are what is asked for.
class OperatorConversation {
 public:
  /// Errors: no JSON, no messages, a message without role or with a content that is no text, no message of a user, over
  /// kMaxConversationBytes or kMaxConversationMessages.
  static Result<std::shared_ptr<const OperatorConversation>> parse(std::string text, const std::string& file_name);

  /// Two requests: "verbatim", the conversation as it is (not graded), and "planted", the same skeleton, with a code
  /// stated in one of its turns in place of as much text, and asked for at the end. Turn, place and code follow from
  /// the seed.
  std::vector<Ask> asks(const ItemId& id) const;

  OperatorConversation() = default;  // empty; parse() makes one

  const std::string& text() const { return text_; }
  /// Of the file, as reports name it: the text itself stays in the case folder.
  const std::string& hash() const { return hash_; }
  std::size_t message_count() const { return messages_.size(); }
  /// "14 messages, 8213 bytes, 3 tools, xxh3 …".
  std::string described() const;

 private:
  std::vector<std::size_t> hosts() const;

  std::string text_;
  std::string hash_;
  std::vector<Message> messages_;
  std::string body_;  // tools and the like, merged into each request
  std::size_t tools_ = 0;
};

/// The probe's requests; none without a conversation.
Item make_conversation(const ItemId& id, int length, Wording wording, const Shape& shape);

}  // namespace plumb::investigator
