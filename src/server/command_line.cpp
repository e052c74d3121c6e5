#include "server/command_line.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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

// The message of a parse error, in words that say what to do where CLI11's do not.
std::string why(const CLI::Error& e) {
  const std::string text = e.what();
  const std::size_t at = text.find(": At Most 1 required but received ");
  return at == std::string::npos ? text : text.substr(0, at) + ": is given more than once";
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

// The number of a stream that was closed goes to the next file that is opened, and what is printed would end up in it.
// One that can neither be read (0) nor written (1) takes its place, so that the command notices.
void occupy_standard_streams() {
  for (const int number : {0, 1, 2})
    if (::fcntl(number, F_GETFD) < 0 && errno == EBADF)
      (void)::open("/dev/null", number == 1 ? O_RDONLY : O_WRONLY);  // the lowest free number is this one
}

std::terminate_handler default_terminate = nullptr;

// Memory that runs out in any thread ends the process in one line and with the exit code of every error: a dump of the
// process tells nobody more.
[[noreturn]] void end_for_want_of_memory() {
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kMessage = "plumb: out of memory: give the process more, or ask for less at a time\n";
    (void)!::write(2, kMessage.data(), kMessage.size());
    ::_exit(kExitError);
  } catch (...) {
    default_terminate();
  }
  default_terminate();
  std::abort();
}

int parse_and_run(CLI::App& app, int argc, const char* const* argv, const int& exit_code) {
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
    return fmt::format("{}: {}; {}{}{} --help explains\n", app.get_name(), why(e), app.get_name(),
                       command == nullptr ? "" : " ", command == nullptr ? "" : command->get_name());
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // std::cout would be flushed at once, and why that failed would be lost.
    std::ostringstream out, err;
    const int code = app.exit(e, out, err) == 0 ? kExitClean : kExitError;
    fmt::print(stderr, "{}", err.str());
    fmt::print("{}", out.str());
    return code;
  }
  return exit_code;
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
  occupy_standard_streams();
  // A file that may not grow any more fails its write, and what was begun is removed; by default the signal ends us
  // first.
  std::signal(SIGXFSZ, SIG_IGN);
  if (default_terminate == nullptr) default_terminate = std::set_terminate(end_for_want_of_memory);
  int code = kExitError;
  std::string reason;
  try {
    code = parse_and_run(app, argc, argv, exit_code);
  } catch (const std::bad_alloc&) {
    end_for_want_of_memory();
  } catch (const std::system_error& e) {
    if (std::ferror(stdout) == 0) throw;
    reason = e.code().message();
  }
  // std::cout keeps nothing back: it writes into the same buffer.
  if (std::fflush(stdout) != 0) reason = std::strerror(errno);
  if (std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "{}: standard output cannot be written{}{}\n", app.get_name(), reason.empty() ? "" : ": ", reason);
  return kExitError;
}

}  // namespace plumb::server
