#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/chat.h"

namespace plumb {

/// What a stretch of an answer turned out to be. Texts are bytes as generated: a character may be cut between two
/// events.
struct ReplyEvent {
  enum class Kind {
    reasoning,    // text of the thinking
    content,      // text of the answer
    call,         // a call begins; text: the function's name
    arguments,    // text: a fragment of the latest call's arguments; all fragments together are JSON text
    call_broken,  // the latest call did not end well; text: the call as generated, which is content instead
    warning       // text: what was irregular, a word of a fixed set
  } kind;
  std::string text;

  bool operator==(const ReplyEvent&) const = default;
};

/// Reads an answer's text as it is generated. What the events say does not depend on where the text was cut: events of
/// one kind in a row, joined, are the same (a call_broken's text and a warning stand for themselves).
class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  virtual void push(std::string_view bytes, std::vector<ReplyEvent>& events) = 0;
  /// The answer has ended: what was held back comes out.
  virtual void finish(std::vector<ReplyEvent>& events) = 0;
  /// Nothing that follows belongs to the answer: generation may stop.
  virtual bool complete() const = 0;
  /// What comes next is part of the thinking.
  virtual bool in_reasoning() const = 0;
};

/// How an answer is read.
struct ReplyOptions {
  bool tools_active = false;          // calls are looked for; otherwise their text is content
  std::vector<ChatTool> tools;        // those declared
  bool one_call = false;              // the answer is complete after the first call
  bool calls_in_reasoning = true;     // a call inside the thinking ends it and counts; false: it is thinking
  bool trim_leading_newlines = true;  // of the thinking and of the content
  bool lenient = false;               // also takes tags that lost a part of their marker
  bool split_reasoning = true;        // false: thinking, its end included, is content
};

}  // namespace plumb
