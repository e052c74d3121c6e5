#pragma once

// For tests only: a form of calls that is short enough to script, read by an independent parser.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/python_json.h"
#include "model/reply_parser.h"

namespace plumb::server::testing_support {

/// The reader of answers that are text, or, with tools, `<call> NAME TEXT</call>`, whose arguments are {"text": TEXT}
/// and which ends the answer. One space at the start is the form's. A call that has no name or does not end is content.
/// Warnings: unknown_tool, malformed_call, unterminated_block.
class CallParser final : public ReplyParser {
 public:
  using Kind = ReplyEvent::Kind;

  explicit CallParser(ReplyOptions options) : options_(std::move(options)) {}

  void push(std::string_view bytes, std::vector<ReplyEvent>& events) override {
    for (const char c : bytes) step(c, events);
    flush(events);
  }

  void finish(std::vector<ReplyEvent>& events) override {
    if (state_ == State::content) add(Kind::content, std::exchange(pending_, {}), events);
    if (state_ == State::name || state_ == State::text) {
      warn("unterminated_block", events);
      break_call(events);
    }
    flush(events);
    state_ = State::done;
  }

  bool complete() const override { return state_ == State::done; }
  bool in_reasoning() const override { return false; }

 private:
  enum class State { content, name, text, plain, done } state_ = State::content;

  void add(Kind kind, std::string_view text, std::vector<ReplyEvent>& events) {
    if (text.empty()) return;
    // The space of the form between the role's marker and the text.
    if (std::exchange(at_start_, false) && kind == Kind::content && text.front() == ' ') text.remove_prefix(1);
    if (kind != open_kind_) flush(events);
    open_kind_ = kind;
    open_text_ += text;
  }
  void flush(std::vector<ReplyEvent>& events) {
    if (!open_text_.empty()) events.push_back({open_kind_, std::exchange(open_text_, {})});
  }
  void warn(const char* kind, std::vector<ReplyEvent>& events) {
    flush(events);
    events.push_back({Kind::warning, kind});
  }

  void step(char c, std::vector<ReplyEvent>& events) {
    switch (state_) {
      case State::content:
        pending_ += c;
        if (options_.tools_active && kCall.starts_with(pending_)) {
          if (pending_ == kCall) state_ = State::name;
          if (pending_ == kCall) raw_ = std::exchange(pending_, {});
          return;
        }
        return end_pending(Kind::content, kCall, events);
      case State::name:
        raw_ += c;
        return name_step(c, events);
      case State::text:
        raw_ += c;
        pending_ += c;
        if (pending_ == kEndCall) return end_call(events);
        if (!kEndCall.starts_with(pending_)) end_pending(Kind::arguments, kEndCall, events);
        return;
      case State::plain:
        return add(Kind::content, std::string_view(&c, 1), events);
      case State::done:
        return;
    }
  }

  // What cannot become `marker` any more is text; only a last '<' can begin one again.
  void end_pending(Kind kind, std::string_view marker, std::vector<ReplyEvent>& events) {
    const bool again = options_.tools_active && pending_.size() > 1 && pending_.back() == marker.front();
    std::string text = std::exchange(pending_, again ? std::string(1, marker.front()) : std::string());
    if (again) text.pop_back();
    if (kind == Kind::content) return add(kind, text, events);
    std::string escaped;
    append_json_escaped(escaped, text);
    add(kind, escaped, events);
  }

  // " NAME " or " NAME</call>".
  void name_step(char c, std::vector<ReplyEvent>& events) {
    name_ += c;
    const bool letters = c >= 'a' && c <= 'z';
    const std::size_t mark = name_.find('<');
    if (name_ == " " || (letters && mark == name_.npos && name_.front() == ' ')) return;
    const std::string_view name = std::string_view(name_).substr(1, (mark == name_.npos ? name_.size() - 1 : mark) - 1);
    if (!name.empty() && name_.front() == ' ' && mark != name_.npos && kEndCall.starts_with(name_.substr(mark))) {
      if (name_.size() - mark < kEndCall.size()) return;
      begin_call(std::string(name), events);
      return end_call(events);
    }
    if (c == ' ' && !name.empty() && mark == name_.npos) return begin_call(std::string(name), events);
    warn("malformed_call", events);
    break_call(events);
  }

  void begin_call(const std::string& name, std::vector<ReplyEvent>& events) {
    flush(events);
    events.push_back({Kind::call, name});
    call_open_ = true;
    if (std::none_of(options_.tools.begin(), options_.tools.end(), [&](const auto& tool) { return tool.name == name; }))
      warn("unknown_tool", events);
    add(Kind::arguments, "{\"text\": \"", events);
    state_ = State::text;
  }

  void end_call(std::vector<ReplyEvent>& events) {
    add(Kind::arguments, "\"}", events);
    flush(events);
    state_ = State::done;
  }

  void break_call(std::vector<ReplyEvent>& events) {
    flush(events);
    if (call_open_)
      events.push_back({Kind::call_broken, std::exchange(raw_, {})});
    else
      add(Kind::content, std::exchange(raw_, {}), events);
    pending_.clear();
    state_ = State::plain;
  }

  static constexpr std::string_view kCall = "<call>", kEndCall = "</call>";

  const ReplyOptions options_;
  Kind open_kind_ = Kind::content;
  std::string open_text_;
  std::string pending_, raw_, name_;
  bool at_start_ = true;
  bool call_open_ = false;
};

}  // namespace plumb::server::testing_support
