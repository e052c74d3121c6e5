#include "model/v4_tags.h"

#include <fmt/format.h>

#include "model/v4_chat.h"

namespace plumb {

V4TagSet::V4TagSet(std::initializer_list<V4Tag> tags, bool lenient) {
  for (const V4Tag tag : tags) add(tag, lenient);
}

std::pair<V4TagSet::Match, V4Tag> V4TagSet::match(std::string_view text) const {
  Match best = Match::no;
  for (const Spelling& spelling : spellings_) {
    if (spelling.text == text) return {Match::whole, spelling.tag};
    if (std::string_view(spelling.text).starts_with(text)) best = Match::partly;
  }
  return {best, V4Tag::none};
}

void V4TagSet::add_marked(V4Tag tag, std::string_view begin, std::string_view rest, bool lenient) {
  spellings_.push_back({tag, fmt::format("{}{}{}", begin, v4::kDsml, rest)});
  if (!lenient) return;
  spellings_.push_back({tag, fmt::format("{}DSML｜{}", begin, rest)});
  spellings_.push_back({tag, fmt::format("{}{}", begin, rest)});
}

void V4TagSet::add(V4Tag tag, bool lenient) {
  switch (tag) {
    case V4Tag::think:
      spellings_.push_back({tag, std::string(v4::kThink)});
      break;
    case V4Tag::end_think:
      spellings_.push_back({tag, std::string(v4::kEndThink)});
      break;
    case V4Tag::block:
      return add_marked(tag, "<", "tool_calls>", lenient);
    case V4Tag::end_block:
      return add_marked(tag, "</", "tool_calls>", lenient);
    case V4Tag::invoke:
      return add_marked(tag, "<", "invoke name=\"", lenient);
    case V4Tag::end_invoke:
      return add_marked(tag, "</", "invoke>", lenient);
    case V4Tag::parameter:
      return add_marked(tag, "<", "parameter name=\"", lenient);
    case V4Tag::end_parameter:
      return add_marked(tag, "</", "parameter>", lenient);
    case V4Tag::flag_true:
      spellings_.push_back({tag, "true\">"});
      break;
    case V4Tag::flag_false:
      spellings_.push_back({tag, "false\">"});
      break;
    case V4Tag::brace:
      spellings_.push_back({tag, "{"});
      break;
    case V4Tag::none:
      break;
  }
}

}  // namespace plumb
