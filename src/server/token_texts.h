#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/encoding.h"
#include "runtime/generator.h"

namespace plumb::server {

/// The text of every token as JSON, made once; no two tokens have the same. One whose bytes are not UTF-8 by themselves
/// is written as OpenAI's API does, `bytes:\xe6\xbc`; one whose text a lower id has (unused ids have none) is
/// `token_id:7`.
class TokenTexts {
 public:
  explicit TokenTexts(const Encoding& encoding);

  const std::string& bytes(std::int32_t id) const { return bytes_[static_cast<std::size_t>(id)]; }
  /// The text with its quotes.
  const std::string& quoted(std::int32_t id) const { return quoted_[static_cast<std::size_t>(id)]; }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  std::vector<std::string> bytes_;
  std::vector<std::string> quoted_;
};

/// Appends a log-probability: the f32 widened to double and printed shortest, so that reading it gives the same f32.
/// Values that JSON cannot say are null.
void append_logprob(std::string& out, float value);

/// Collects the log-probabilities of /v1/completions:
/// {tokens, token_logprobs, top_logprobs, text_offset, token_ids, top_logprob_ids}.
///
/// top_logprobs maps the texts of the k largest and of the token itself to values, as in OpenAI's API. token_ids and
/// top_logprob_ids ([[id, logprob]…], the k largest only, largest first) are ours.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const TokenTexts& texts) : texts_(&texts) {}
  /// The first token of an echoed prompt, which nothing predicts: null entries.
  void append_unscored(std::int32_t id, std::size_t text_offset);
  void append(const TokenScore& score, std::size_t text_offset);
  bool empty() const { return tokens_.empty(); }
  /// The object so far; starts anew.
  std::string take();

 private:
  void append_token(std::int32_t id, std::size_t text_offset);

  const TokenTexts* texts_;
  std::string tokens_, token_logprobs_, top_, offsets_, ids_, top_ids_;
};

/// Collects the log-probabilities of chat: {"content": [{token, token_id, bytes, logprob, top_logprobs: […]}]}.
class ChatLogprobs {
 public:
  explicit ChatLogprobs(const TokenTexts& texts) : texts_(&texts) {}
  void append(const TokenScore& score);
  bool empty() const { return content_.empty(); }
  std::string take();

 private:
  void append_entry(std::int32_t id, float logprob);

  const TokenTexts* texts_;
  std::string content_;
};

}  // namespace plumb::server
