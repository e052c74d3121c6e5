#include "server/reply_reader.h"

#include <algorithm>
#include <utility>

namespace plumb::server {

using Kind = ReplyDelta::Kind;

ReplyReader::ReplyReader(std::unique_ptr<ReplyParser> parser, std::vector<std::string> stops)
    : parser_(std::move(parser)), stop_(std::move(stops)) {}

void ReplyReader::show(Kind kind, std::string text, std::vector<ReplyDelta>& deltas) {
  if (kind == Kind::content) {
    characters_ += count_characters(text);
    text = stop_.push(text);
  }
  if (text.empty()) return;
  if (!deltas.empty() && deltas.back().kind == kind)
    deltas.back().text += text;
  else
    deltas.push_back({.kind = kind, .text = std::move(text), .call = calls_ == 0 ? 0 : calls_ - 1});
}

// A character or a stop string does not go on behind something of another kind.
void ReplyReader::end_channel(std::vector<ReplyDelta>& deltas) {
  show(channel_, utf8_.finish(), deltas);
  if (channel_ != Kind::content || stop_.matched()) return;
  if (std::string rest = stop_.finish(); !rest.empty())
    deltas.push_back({.kind = Kind::content, .text = std::move(rest), .call = 0});
}

void ReplyReader::take_text(Kind kind, std::string_view bytes, std::vector<ReplyDelta>& deltas) {
  if (kind != channel_) end_channel(deltas);
  channel_ = kind;
  show(kind, utf8_.push(bytes), deltas);
}

void ReplyReader::take(const std::vector<ReplyEvent>& events, std::vector<ReplyDelta>& deltas) {
  for (const ReplyEvent& event : events) {
    if (stop_.matched()) return;
    switch (event.kind) {
      case ReplyEvent::Kind::reasoning:
        take_text(Kind::reasoning, event.text, deltas);
        break;
      case ReplyEvent::Kind::content:
        take_text(Kind::content, event.text, deltas);
        break;
      case ReplyEvent::Kind::arguments:
        take_text(Kind::arguments, event.text, deltas);
        break;
      case ReplyEvent::Kind::call: {
        end_channel(deltas);
        channel_ = Kind::call;
        Utf8Stream name;
        std::string text = name.push(event.text) + name.finish();
        deltas.push_back({.kind = Kind::call, .text = std::move(text), .call = calls_});
        ++calls_;
        ++good_calls_;
        break;
      }
      case ReplyEvent::Kind::call_broken:
        end_channel(deltas);
        deltas.push_back({.kind = Kind::call_void, .text = {}, .call = calls_ - 1});
        --good_calls_;
        broken_ = true;
        channel_ = Kind::call_void;
        take_text(Kind::content, event.text, deltas);
        break;
      case ReplyEvent::Kind::warning:
        if (std::find(warnings_.begin(), warnings_.end(), event.text) == warnings_.end())
          warnings_.push_back(event.text);
        break;
    }
  }
}

void ReplyReader::push(std::string_view bytes, std::vector<ReplyDelta>& deltas) {
  if (stop_.matched()) return;
  if (parser_ == nullptr) return take_text(Kind::content, bytes, deltas);
  std::vector<ReplyEvent> events;
  parser_->push(bytes, events);
  take(events, deltas);
}

std::string ReplyReader::echo(std::string_view bytes) {
  std::string text = utf8_.push(bytes);
  characters_ += count_characters(text);
  return text;
}

void ReplyReader::finish(std::vector<ReplyDelta>& deltas) {
  if (stop_.matched()) return;
  std::vector<ReplyEvent> events;
  if (parser_ != nullptr) parser_->finish(events);
  take(events, deltas);
  end_channel(deltas);
}

}  // namespace plumb::server
