#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/reply_parser.h"
#include "server/text_stream.h"

namespace plumb::server {

/// What a stretch of an answer adds to what the client has: valid UTF-8.
struct ReplyDelta {
  enum class Kind {
    reasoning,
    content,
    call,       // a call begins: text is its function
    arguments,  // of call number `call`
    call_void   // call number `call` did not end well: its text follows as content
  } kind;
  std::string text;
  std::size_t call = 0;
};

/// From the bytes of an answer to what the client is shown: reads thinking and calls (chat), completes characters, and
/// ends at a stop string, which is looked for in the content only.
class ReplyReader {
 public:
  /// Without a parser all is content: completions.
  ReplyReader(std::unique_ptr<ReplyParser> parser, std::vector<std::string> stops);

  void push(std::string_view bytes, std::vector<ReplyDelta>& deltas);
  /// Characters that stand before the answer and are shown with it: an echoed prompt. No stop string is looked for.
  std::string echo(std::string_view bytes);
  /// The answer has ended: what was held back comes out.
  void finish(std::vector<ReplyDelta>& deltas);

  /// A stop string came: nothing more is shown. Its text.
  bool stopped() const { return stop_.matched(); }
  const std::string& stop() const { return stop_.match(); }
  /// Nothing that follows belongs to the answer.
  bool complete() const { return stopped() || (parser_ != nullptr && parser_->complete()); }
  bool in_reasoning() const { return parser_ != nullptr && parser_->in_reasoning(); }

  /// Characters of content that were shown or are held back.
  std::size_t characters() const { return characters_; }
  /// There are calls, all of which ended well so far; one did not.
  bool has_calls() const { return good_calls_ > 0; }
  bool broken() const { return broken_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void take(const std::vector<ReplyEvent>& events, std::vector<ReplyDelta>& deltas);
  void take_text(ReplyDelta::Kind kind, std::string_view bytes, std::vector<ReplyDelta>& deltas);
  void show(ReplyDelta::Kind kind, std::string text, std::vector<ReplyDelta>& deltas);
  void end_channel(std::vector<ReplyDelta>& deltas);

  std::unique_ptr<ReplyParser> parser_;
  StopMatcher stop_;
  Utf8Stream utf8_;
  ReplyDelta::Kind channel_ = ReplyDelta::Kind::content;
  std::size_t characters_ = 0;
  std::size_t calls_ = 0, good_calls_ = 0;
  bool broken_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace plumb::server
