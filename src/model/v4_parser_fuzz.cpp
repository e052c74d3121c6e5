#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/rng.h"
#include "model/reply_text.h"
#include "model/v4_parser.h"

using namespace plumb;

namespace {

ReplyText read(std::string_view text, const ReplyOptions& options, bool thinks, Rng* cuts) {
  const auto parser = v4_reply_parser(options, thinks);
  std::vector<ReplyEvent> events;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = cuts == nullptr ? text.size() : 1 + cuts->below(9);
    parser->push(text.substr(at, size), events);
    at += size;
  }
  parser->finish(events);
  CHECK(parser->complete());
  ReplyText out;
  for (const ReplyEvent& event : events) out.add(event);
  return out;
}

}  // namespace

// The first byte sets the options, the second the cuts; the rest is an answer. Whatever it is: cutting it anywhere
// reads the same, and what is called a call has arguments that are JSON where they are ASCII.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  ReplyOptions options;
  options.tools_active = (data[0] & 1) == 0;
  options.lenient = (data[0] & 2) != 0;
  options.one_call = (data[0] & 4) != 0;
  options.calls_in_reasoning = (data[0] & 8) == 0;
  options.split_reasoning = (data[0] & 16) == 0;
  options.trim_leading_newlines = (data[0] & 32) == 0;
  options.tools = {{.name = "f", .function = {}, .properties = {"a"}, .required = {"a"}}};
  const bool thinks = (data[0] & 64) != 0;
  const ReplyText whole = read(text, options, thinks, nullptr);
  Rng cuts{data[1]};
  const ReplyText cut = read(text, options, thinks, &cuts);
  CHECK(whole.reasoning == cut.reasoning && whole.content == cut.content && whole.warnings == cut.warnings);
  CHECK(whole.calls.size() == cut.calls.size() && whole.broken == cut.broken);
  CHECK(options.tools_active || whole.calls.empty());
  for (std::size_t i = 0; i < whole.calls.size(); ++i) {
    CHECK(whole.calls[i].name == cut.calls[i].name && whole.calls[i].arguments == cut.calls[i].arguments);
    const std::string& arguments = whole.calls[i].arguments;
    CHECK(!arguments.empty() && arguments.front() == '{' && arguments.back() == '}');
    const bool ascii = std::all_of(arguments.begin(), arguments.end(), [](char c) { return (c & 0x80) == 0; });
    if (ascii) CHECK(nlohmann::json::accept(arguments));
  }
  return 0;
}
