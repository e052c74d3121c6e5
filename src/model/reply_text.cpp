#include "model/reply_text.h"

#include "base/check.h"

namespace plumb {

void ReplyText::add(const ReplyEvent& event) {
  using Kind = ReplyEvent::Kind;
  switch (event.kind) {
    case Kind::reasoning:
      reasoning += event.text;
      break;
    case Kind::content:
      content += event.text;
      break;
    case Kind::call:
      calls.push_back({.id = {}, .name = event.text, .arguments = {}});
      break;
    case Kind::arguments:
      CHECK(!calls.empty());
      calls.back().arguments += event.text;
      break;
    case Kind::call_broken:
      CHECK(!calls.empty());
      calls.pop_back();
      content += event.text;
      broken = true;
      break;
    case Kind::warning:
      warnings.push_back(event.text);
      if (event.text == "malformed_call") broken = true;
      break;
  }
}

}  // namespace plumb
