#include "server/command_line.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "switches/backend.h"

namespace plumb::server {
namespace {

constexpr int kExitClean = 0;
constexpr int kExitError = 3;
constexpr std::size_t kShownBytes = 80;

// Puts the number into the one form that CLI11 reads as we do: it takes 010 for octal and -1 for 2^64-1.
template <class T>
CLI::Option* takes(CLI::Option* option, T least, T most, const char* what) {
  const std::string range = fmt::format("{} from {} to {}", what, least, most);
  const auto read = [least, most, range](std::string& text) {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, failed] = std::from_chars(text.data(), end, value);
    // Written so that a NaN fails.
    if (failed != std::errc() || stop != end || !(value >= least && value <= most)) return "must be " + range;
    text = fmt::format("{}", value);
    return std::string();
  };
  return option->transform(CLI::Validator(read, "", ""));
}

CLI::App* find_command(CLI::App& app, std::string_view name) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    if (command->get_name() == name) return command;
  return nullptr;
}

int unknown_command(const CLI::App& app, std::string_view name) {
  fmt::print(stderr, "{}: unknown command '{}{}'; {} --help lists them\n", app.get_name(), name.substr(0, kShownBytes),
             name.size() > kShownBytes ? "..." : "", app.get_name());
  return kExitError;
}

}  // namespace

CLI::Option* takes_whole(CLI::Option* option, std::int64_t least, std::int64_t most) {
  return takes(option, least, most, "a whole number");
}
CLI::Option* takes_seed(CLI::Option* option) {
  return takes(option, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(), "a whole number");
}
CLI::Option* takes_number(CLI::Option* option, double least, double most) {
  return takes(option, least, most, "a number");
}

CLI::Option* takes_backend(CLI::Option* option) {
  const auto check = [](const std::string& text) {
    return parse_backend(text).has_value() ? std::string() : std::string("must be cpu or ref");
  };
  return option->check(CLI::Validator(check, "", ""));
}

int run_command_line(CLI::App& app, int argc, const char* const* argv, const int& exit_code) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool help = first == "help";
  const std::string_view name = help ? std::string_view(argc > 2 ? argv[2] : "") : first;
  CLI::App* const command = find_command(app, name);
  if (!name.empty() && !name.starts_with('-') && command == nullptr) return unknown_command(app, name);
  if (help) {
    fmt::print("{}", command == nullptr ? app.help() : command->help());
    return kExitClean;
  }
  app.failure_message([&](const CLI::App*, const CLI::Error& e) {
    return fmt::format("{}: {}; {}{}{} --help explains\n", app.get_name(), e.what(), app.get_name(),
                       command == nullptr ? "" : " ", command == nullptr ? "" : command->get_name());
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kExitClean : kExitError;
  }
  return exit_code;
}

}  // namespace plumb::server
