#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "cli/commands.h"
#include "model/tokenizer.h"

namespace plumb::cli {
namespace {

struct TokenizeArgs {
  std::string model;
  std::string text;
  bool has_text = false;
  bool json = false;
};

/// Ids by the folder's tokenizer.json, which needs no chat form around it.
Result<std::vector<std::int32_t>> ids_of(const std::filesystem::path& folder, std::string_view text) {
  if (const auto there = check_folder(folder); !there) return tl::unexpected(there.error());
  const auto tokenizer = Tokenizer::load(folder / "tokenizer.json");
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  return tokenizer->encode(text, Specials::parse);
}

Result<std::string> standard_input() {
  std::string text;
  std::array<char, 1 << 16> part;
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), stdin)) text.append(part.data(), count);
  if (std::ferror(stdin) != 0) return error("standard input cannot be read: {}", std::strerror(errno));
  return text;
}

int run_tokenize(const TokenizeArgs& args) {
  const auto text = args.has_text ? args.text : standard_input();
  if (!text) return fail(text.error().message);
  const auto ids = ids_of(args.model, *text);
  if (!ids) return fail(ids.error().message);
  if (args.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"ids", *ids}, {"count", ids->size()}}.dump());
  else
    fmt::print("{}\n", fmt::join(*ids, " "));
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
