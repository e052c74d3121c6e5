#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/api.h"

using namespace plumb::server;

namespace {

// Whatever the bytes are: a request that keeps the bounds, or an error that names a code.
template <class T>
void check_error(const ApiResult<T>& result) {
  if (!result) CHECK(result.error().status == 400 && !result.error().code.empty() && !result.error().message.empty());
  if (!result) CHECK(!error_body(result.error()).empty());
}

void check_bounds(const GenerationOptions& options, const ApiLimits& limits) {
  CHECK(1 <= options.n && static_cast<std::size_t>(options.n) <= limits.max_choices);
  CHECK(options.logprobs >= -1 && options.logprobs <= limits.vocab_size);
  CHECK(options.stop.size() <= limits.max_stops);
  for (const auto id : options.stop_token_ids) CHECK(0 <= id && id < limits.vocab_size);
}

}  // namespace

// The first byte picks the parser, the rest is the body.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  ApiLimits limits;
  limits.vocab_size = 1000;
  if (data[0] % 2 == 1) limits.max_logprobs = -1;
  switch (data[0] / 2 % 4) {
    case 0: {
      const auto request = parse_completion_request(body, limits);
      check_error(request);
      if (!request) break;
      check_bounds(request->options, limits);
      CHECK(request->options.max_tokens.has_value() && !request->prompts.empty());
      CHECK(request->prompts.size() * static_cast<std::size_t>(request->options.n) <= limits.max_choices);
      break;
    }
    case 1: {
      const auto request = parse_chat_request(body, limits);
      check_error(request);
      if (!request) break;
      check_bounds(request->options, limits);
      CHECK(!request->conversation.messages.empty());
      for (const auto& tool : request->conversation.tools) CHECK(!tool.name.empty() && !tool.function.empty());
      break;
    }
    case 2: {
      const auto request = parse_tokenize_request(body, limits);
      check_error(request);
      if (request) CHECK(request->prompt.has_value() != request->conversation.has_value());
      break;
    }
    default:
      check_error(parse_detokenize_request(body, limits));
  }
  return 0;
}
