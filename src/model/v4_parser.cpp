#include "model/v4_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/fence.h"
#include "model/python_json.h"
#include "model/v4_tags.h"

namespace plumb {
namespace {

using Kind = ReplyEvent::Kind;

using Tag = V4Tag;
using TagSet = V4TagSet;

constexpr std::string_view kEndOfName = "\">", kEndOfKey = "\" string=\"";
constexpr std::size_t kMaxNameBytes = 512, kMaxKeyBytes = 4096;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_space(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return is_space(c); });
}

bool is_json(std::string_view text) { return nlohmann::json::accept(text); }
bool is_object(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n\r");
  return first != text.npos && text[first] == '{' && is_json(text);
}

class V4Parser final : public ReplyParser {
 public:
  V4Parser(ReplyOptions options, bool starts_in_reasoning)
      : options_(std::move(options)),
        state_(starts_in_reasoning && options_.split_reasoning ? State::reasoning : State::content),
        thinks_in_content_(starts_in_reasoning && !options_.split_reasoning) {}

  void push(std::string_view bytes, std::vector<ReplyEvent>& events) override {
    events_ = &events;
    for (const char c : bytes) step(c);
    flush();
  }

  void finish(std::vector<ReplyEvent>& events) override {
    events_ = &events;
    if (in_text()) {
      end_pending_as_text();
      emit_space();
      if (state_ == State::reasoning) warn("unterminated_reasoning");
    } else if (state_ == State::block && call_count_ > 0 && is_space(raw_)) {
      warn("unterminated_block");
    } else if (state_ != State::done) {
      if (state_ == State::open_name) {
        open_name_is_text();
        emit_space();
      } else {
        warn("unterminated_block");
        break_call();
      }
    }
    flush();
    state_ = State::done;
  }

  bool complete() const override { return state_ == State::done; }
  bool in_reasoning() const override { return state_ == State::reasoning; }

 private:
  enum class State {
    reasoning,
    content,
    plain,      // behind a broken call: all is content
    open_name,  // the name of an invoke without its block
    block,      // between invokes
    name,
    invoke,  // between parameters
    direct,  // a bare object
    key,
    flag,
    value,
    done
  };

  bool in_text() const { return state_ == State::reasoning || state_ == State::content || state_ == State::plain; }

  void step(char c) {
    switch (state_) {
      case State::reasoning:
      case State::content:
      case State::plain:
        return text_step(c);
      case State::open_name:
      case State::name:
        return name_step(c);
      case State::block:
      case State::invoke:
      case State::flag:
        return tag_step(c);
      case State::key:
        return key_step(c);
      case State::direct:
      case State::value:
        return value_step(c);
      case State::done:
        if (!is_space(c) && !std::exchange(warned_tail_, true)) warn("text_after_block");
    }
  }

  // --- events ---

  void add(Kind kind, std::string_view more) {
    if (more.empty()) return;
    if (kind != open_kind_) flush();
    open_kind_ = kind;
    open_text_ += more;
  }
  void flush() {
    if (!open_text_.empty()) events_->push_back({open_kind_, std::exchange(open_text_, {})});
  }
  void warn(const char* kind) {
    flush();
    events_->push_back({Kind::warning, kind});
  }
  void arguments(std::string_view more) { add(Kind::arguments, more); }

  // --- text ---

  void text(std::string_view more) {
    if (more.empty()) return;
    if (std::exchange(at_start_, false) && options_.trim_leading_newlines)
      more.remove_prefix(std::min(more.find_first_not_of("\r\n"), more.size()));
    if (more.empty()) at_start_ = true;
    add(state_ == State::reasoning ? Kind::reasoning : Kind::content, more);
  }
  void emit_space() { text(std::exchange(space_, {})); }

  // A byte that is text for certain, white space aside: that waits, for it may stand before a block.
  void text_byte(char c) {
    fence_.push(c);
    if (is_space(c)) {
      space_ += c;
      return;
    }
    emit_space();
    text(std::string_view(&c, 1));
  }

  void end_pending_as_text() {
    for (const char c : std::exchange(pending_, {})) text_byte(c);
  }

  const TagSet& text_tags() const {
    if (state_ == State::plain) return no_tags_;
    if (!options_.tools_active || (state_ == State::reasoning && !options_.calls_in_reasoning)) return think_tags_;
    return text_tags_;
  }

  void text_step(char c) {
    pending_ += c;
    const auto [match, tag] = text_tags().match(pending_);
    if (match == TagSet::Match::partly) return;
    if (match == TagSet::Match::whole && take_tag_in_text(tag)) return;
    if (match == TagSet::Match::whole) return end_pending_as_text();
    // Only the last byte can begin another tag: '<' stands nowhere else in one.
    const char last = pending_.back();
    const bool alone = pending_.size() == 1;
    pending_.pop_back();
    end_pending_as_text();
    if (alone)
      text_byte(last);
    else
      text_step(last);
  }

  // False: the tag is text here.
  bool take_tag_in_text(Tag tag) {
    if (tag == Tag::think) {
      if (!at_start_ || std::exchange(stripped_think_, true)) return false;
      pending_.clear();
      return true;
    }
    if (tag == Tag::end_think) {
      if (state_ == State::reasoning) {
        emit_space();
        flush();
        state_ = State::content;
        at_start_ = true;
        fence_ = {};
      } else if (std::exchange(thinks_in_content_, false) || fence_.inside()) {
        return false;
      } else {
        warn("second_end_of_thinking");
      }
      pending_.clear();
      return true;
    }
    if (fence_.inside()) return false;
    raw_ = std::exchange(space_, {}) + std::exchange(pending_, {});
    text_state_ = state_;
    if (tag == Tag::block) {
      flush();
      state_ = State::block;
    } else {
      name_.clear();
      state_ = State::open_name;
    }
    return true;
  }

  // --- calls ---

  const ChatTool* declared(std::string_view name) const {
    const auto at = std::find_if(options_.tools.begin(), options_.tools.end(),
                                 [&](const ChatTool& tool) { return tool.name == name; });
    return at == options_.tools.end() ? nullptr : &*at;
  }

  void name_step(char c) {
    raw_ += c;
    name_ += c;
    if (name_.ends_with(kEndOfName)) {
      name_.resize(name_.size() - kEndOfName.size());
      if (state_ == State::open_name && declared(name_) == nullptr) return open_name_is_text();
      return begin_call();
    }
    if (c != '\n' && name_.size() < kMaxNameBytes) return;
    if (state_ == State::open_name) return open_name_is_text();
    broken();
  }

  void open_name_is_text() {
    state_ = text_state_;
    for (const char c : std::exchange(raw_, {})) text_byte(c);
  }

  void begin_call() {
    flush();
    tool_ = declared(name_);
    events_->push_back({Kind::call, name_});
    if (tool_ == nullptr) warn("unknown_tool");
    ++call_count_;
    call_open_ = true;
    keys_.clear();
    wrapper_.reset();
    direct_ = false;
    state_ = State::invoke;
  }

  // Between tags: white space, then one of those that may follow.
  void tag_step(char c) {
    raw_ += c;
    if (pending_.empty() && is_space(c) && state_ != State::flag) return;
    pending_ += c;
    const TagSet& allowed = state_ == State::block      ? block_tags_
                            : state_ == State::flag     ? flag_tags_
                            : keys_.empty() && !direct_ ? first_invoke_tags_
                                                        : invoke_tags_;
    const auto [match, tag] = allowed.match(pending_);
    if (match == TagSet::Match::partly) return;
    if (match == TagSet::Match::no) return broken();
    pending_.clear();
    take_tag_in_block(tag);
  }

  void take_tag_in_block(Tag tag) {
    switch (tag) {
      case Tag::end_block:
        flush();
        state_ = State::done;
        raw_.clear();
        break;
      case Tag::invoke:
        name_.clear();
        state_ = State::name;
        break;
      case Tag::end_invoke:
        end_call();
        break;
      case Tag::parameter:
        release_wrapper();
        name_.clear();
        state_ = State::key;
        break;
      case Tag::brace:
        value_ = "{";
        direct_ = true;
        state_ = State::direct;
        break;
      default:
        is_string_ = tag == Tag::flag_true;
        begin_value();
    }
  }

  void key_step(char c) {
    raw_ += c;
    name_ += c;
    if (name_.size() > kMaxKeyBytes) return broken();
    if (!name_.ends_with(kEndOfKey)) return;
    name_.resize(name_.size() - kEndOfKey.size());
    if (std::find(keys_.begin(), keys_.end(), name_) != keys_.end()) return broken();
    keys_.push_back(name_);
    state_ = State::flag;
  }

  void begin_value() {
    value_.clear();
    const bool wraps = keys_.size() == 1 && (name_ == "arguments" || name_ == "input") && tool_ != nullptr &&
                       std::find(tool_->properties.begin(), tool_->properties.end(), name_) == tool_->properties.end();
    holds_value_ = wraps || !is_string_;
    if (wraps)
      wrapper_ = name_;
    else
      begin_member(name_);
    if (!holds_value_) arguments("\"");
    state_ = State::value;
  }

  void begin_member(std::string_view key) {
    std::string head = keys_.size() == 1 ? "{\"" : ", \"";
    append_json_escaped(head, key);
    arguments(head + "\": ");
  }

  void value_byte(char c) {
    if (holds_value_ || state_ == State::direct) {
      value_ += c;
      return;
    }
    std::string escaped;
    append_json_escaped(escaped, std::string_view(&c, 1));
    arguments(escaped);
  }

  void value_step(char c) {
    raw_ += c;
    pending_ += c;
    const auto [match, tag] = (state_ == State::direct ? direct_tags_ : value_tags_).match(pending_);
    if (match == TagSet::Match::partly) return;
    if (match == TagSet::Match::whole) {
      pending_.clear();
      if (tag == Tag::end_parameter) return end_value();
      if (tag == Tag::end_invoke && state_ == State::direct) return end_direct();
      return broken();
    }
    const char last = pending_.back();
    const bool alone = pending_.size() == 1;
    pending_.pop_back();
    for (const char before : std::exchange(pending_, {})) value_byte(before);
    if (alone) return value_byte(last);
    raw_.pop_back();
    value_step(last);
  }

  void end_value() {
    state_ = State::invoke;
    if (wrapper_) return;
    if (is_string_)
      arguments("\"");
    else
      arguments(json_value());
  }

  // A value that was held back, as it stands in the arguments.
  std::string json_value() {
    if (!is_string_ && is_json(value_)) return value_;
    if (!is_string_) warn("invalid_json_value");
    std::string out = "\"";
    append_json_escaped(out, value_);
    return out + "\"";
  }

  void release_wrapper() {
    if (!wrapper_) return;
    begin_member(*wrapper_);
    arguments(json_value());
    wrapper_.reset();
  }

  void end_direct() {
    if (!is_object(value_)) return broken();
    value_.resize(value_.find_last_not_of(" \t\n\r") + 1);
    arguments(value_);
    if (const auto members = python_json_members(value_))
      for (const JsonMember& member : *members) keys_.push_back(member.key);
    close_call();
  }

  void end_call() {
    if (wrapper_ && is_object(value_)) {
      warn("unwrapped_arguments");
      arguments(value_);
      keys_.clear();
      if (const auto members = python_json_members(value_))
        for (const JsonMember& member : *members) keys_.push_back(member.key);
    } else {
      release_wrapper();
      arguments(keys_.empty() ? "{}" : "}");
    }
    close_call();
  }

  void close_call() {
    if (tool_ != nullptr && violates_schema()) warn("schema_violation");
    flush();
    call_open_ = false;
    raw_.clear();
    warned_tail_ = options_.one_call;  // what follows was not asked for
    state_ = options_.one_call ? State::done : State::block;
  }

  bool violates_schema() const {
    const auto has = [](const auto& list, const std::string& key) {
      return std::find(list.begin(), list.end(), key) != list.end();
    };
    return std::any_of(tool_->required.begin(), tool_->required.end(), [&](const auto& k) { return !has(keys_, k); }) ||
           std::any_of(keys_.begin(), keys_.end(), [&](const auto& k) { return !has(tool_->properties, k); });
  }

  void broken() {
    warn("malformed_call");
    break_call();
  }

  // All of the call, or of a block before its first call, is content, and so is what follows.
  void break_call() {
    flush();
    if (std::exchange(call_open_, false))
      events_->push_back({Kind::call_broken, std::exchange(raw_, {})});
    else
      add(Kind::content, std::exchange(raw_, {}));
    pending_.clear();
    state_ = State::plain;
    at_start_ = false;
  }

  const ReplyOptions options_;
  std::vector<ReplyEvent>* events_ = nullptr;
  Kind open_kind_ = Kind::content;
  std::string open_text_;

  State state_;
  State text_state_ = State::content;  // where the block began
  std::string pending_;                // bytes that may become a tag
  std::string space_;                  // white space that may stand before a block
  std::string raw_;                    // the block since its start or the last call, as generated
  FenceTracker fence_;
  bool at_start_ = true;  // nothing of this thinking or content has come yet
  bool stripped_think_ = false;
  bool thinks_in_content_;  // the thinking is shown as content: its end is text
  bool warned_tail_ = false;

  const ChatTool* tool_ = nullptr;
  std::size_t call_count_ = 0;
  bool call_open_ = false;
  std::string name_;  // of the function or parameter
  std::vector<std::string> keys_;
  std::string value_;  // held back: JSON, or a wrapper
  bool is_string_ = false, holds_value_ = false, direct_ = false;
  std::optional<std::string> wrapper_;  // the key of a parameter that may wrap all arguments

  const TagSet no_tags_{{}, false};
  const TagSet think_tags_{{Tag::think, Tag::end_think}, false};
  const TagSet text_tags_{{Tag::think, Tag::end_think, Tag::block, Tag::invoke}, options_.lenient};
  const TagSet block_tags_{{Tag::invoke, Tag::end_block}, options_.lenient};
  const TagSet invoke_tags_{{Tag::parameter, Tag::end_invoke}, options_.lenient};
  const TagSet first_invoke_tags_{{Tag::parameter, Tag::end_invoke, Tag::brace}, options_.lenient};
  const TagSet flag_tags_{{Tag::flag_true, Tag::flag_false}, false};
  const TagSet value_tags_{{Tag::parameter, Tag::end_parameter, Tag::end_invoke}, options_.lenient};
  const TagSet direct_tags_{{Tag::end_invoke}, options_.lenient};
};

}  // namespace

std::unique_ptr<ReplyParser> v4_reply_parser(ReplyOptions options, bool starts_in_reasoning) {
  return std::make_unique<V4Parser>(std::move(options), starts_in_reasoning);
}

}  // namespace plumb
