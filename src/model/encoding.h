#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/chat.h"
#include "model/reply_parser.h"

namespace plumb {

struct ModelConfig;

/// A conversation in the form of its model, cut into stretches: one or more turns whose ids do not depend on what
/// stands around them, for a control token stands at each border. The prompt is the stretches' ids in order. It owns
/// the conversation; its encoding outlives it.
class ChatPrompt {
 public:
  virtual ~ChatPrompt() = default;
  virtual std::size_t stretch_count() const = 0;
  /// All that decides a stretch's ids, as bytes: equal keys of one encoding have equal ids.
  virtual std::string key(std::size_t stretch) const = 0;
  virtual void append_ids(std::size_t stretch, std::vector<std::int32_t>& ids) const = 0;
  /// Who speaks in a stretch, for people: "system", "user+assistant".
  virtual std::string role(std::size_t stretch) const = 0;

  /// The reader of an answer to this prompt. `asked` holds what the request says; what depends on the conversation
  /// (declared tools, whether the answer begins inside the thinking) is filled in.
  virtual std::unique_ptr<ReplyParser> reply_parser(ReplyOptions asked) const = 0;
  /// The end of the prompt that is already part of the answer: a forced call. The reader gets it first.
  const std::string& answer_start() const { return answer_start_; }
  /// The effort of the thinking; empty: it does not think.
  const std::string& effort() const { return effort_; }
  /// What the model does not see as the client may think: words of a fixed set.
  const std::vector<std::string>& warnings() const { return warnings_; }

 protected:
  std::string answer_start_, effort_;
  std::vector<std::string> warnings_;
};

/// Text <-> ids of one checkpoint, and its chat form. Lossless on any bytes: the token_bytes of encode(text), joined,
/// are text.
class Encoding {
 public:
  virtual ~Encoding() = default;
  /// Ids of any bytes; the text of a special token becomes its id.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The exact bytes of a token in [0, vocab_size); a special token's are its text, an unused id has none.
  virtual std::string token_bytes(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  virtual std::int32_t eos() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int32_t bos() const = 0;

  /// The conversation in the model's form. Control strings inside contents become plain bytes unless the conversation
  /// says otherwise. Errors: what the form has no place for, named with its message: nothing is left out silently.
  virtual Result<std::unique_ptr<ChatPrompt>> lay_out(Conversation conversation) const = 0;
  /// Between the text parts of one message's content.
  virtual std::string_view part_separator() const { return {}; }
  /// A prompt of /v1/completions: its ids, with BOS in front where the model expects one and `text` has none.
  virtual std::vector<std::int32_t> encode_prompt(std::string_view text) const { return encode(text); }
  /// The prompt for what stands between two texts. Errors: the model has no form for it.
  virtual Result<std::vector<std::int32_t>> encode_infill(std::string_view prefix, std::string_view suffix) const;
  /// Tokens that no answer of a chat has: one that is drawn shows that something is damaged, and ends the answer.
  virtual std::vector<std::int32_t> never_in_answers() const { return {}; }

  /// A special token whose text the reader of answers needs.
  virtual bool is_read_in_answers(std::int32_t /*id*/) const { return false; }

  /// The whole prompt of messages without options.
  Result<std::vector<std::int32_t>> render_chat(std::span<const ChatMessage> messages) const;
};

/// The ids of all stretches.
std::vector<std::int32_t> prompt_ids(const ChatPrompt& prompt);

/// The encoding of the checkpoint in `folder`, DeepSeek-V4's with its tokenizer.json. Errors: no such file, an unknown
/// profile (V4.1 is named), a vocabulary that its profile cannot use.
Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder);

/// Same, held against the config of the same checkpoint. Errors: also another vocabulary size, bos or eos than
/// `config`'s.
Result<std::unique_ptr<Encoding>> load_encoding(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace plumb
