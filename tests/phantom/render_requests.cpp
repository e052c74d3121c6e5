// Renders chat requests without a model, for tests that hold another encoder against the server's:
//   render_requests MODEL_FOLDER <bodies >ids
// One JSON body of /v1/chat/completions a line; the answer to each is one line with the ids of its prompt. The folder
// needs tokenizer.json and config.json only.
#include <cstdio>
#include <iostream>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/encoding.h"
#include "server/api.h"
#include "switches/switches.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: render_requests MODEL_FOLDER <bodies\n", stderr), 3;
  const auto encoding = plumb::load_encoding(argv[1]);
  if (!encoding) return fmt::print(stderr, "{}\n", encoding.error().message), 3;
  plumb::server::ApiLimits limits;
  limits.settings = plumb::Settings::defaults();
  limits.part_separator = (*encoding)->part_separator();
  for (std::string body; std::getline(std::cin, body);) {
    auto request = plumb::server::parse_chat_request(body, limits);
    if (!request) return fmt::print(stderr, "{}\n", request.error().message), 3;
    const auto prompt = (*encoding)->lay_out(std::move(request->conversation));
    if (!prompt) return fmt::print(stderr, "{}\n", prompt.error().message), 3;
    fmt::print("{}\n", fmt::join(plumb::prompt_ids(**prompt), " "));
  }
  return 0;
}
