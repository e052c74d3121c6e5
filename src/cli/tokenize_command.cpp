#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "model/encoding.h"

namespace plumb::cli {
namespace {

struct TokenizeArgs {
  std::string model;
  std::string text;
  bool has_text = false;
  bool json = false;
};

int run_tokenize(const TokenizeArgs& args) {
  const auto encoding = load_encoding(args.model);
  if (!encoding) return fail(encoding.error().message);
  const std::string text =
      args.has_text ? args.text
                    : std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  const auto ids = (*encoding)->encode(text);
  if (args.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"ids", ids}, {"count", ids.size()}}.dump());
  else
    fmt::print("{}\n", fmt::join(ids, " "));
  return kClean;
}

}  // namespace

void add_tokenize_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("tokenize", "print the token ids of a text (from -p or standard input)");
  auto args = std::make_shared<TokenizeArgs>();
  command->add_option("MODEL", args->model, "folder of the checkpoint")->required();
  CLI::Option* text = command->add_option("-p,--prompt", args->text, "the text; without it standard input is read");
  command->add_flag("--json", args->json, "print one JSON document");
  command->callback([args, text, &exit_code] {
    args->has_text = text->count() > 0;
    exit_code = run_tokenize(*args);
  });
}

}  // namespace plumb::cli
