#include "server/command_line.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace plumb::server {
namespace {

// Ends the process with the exit code of a command that prints `bytes` to `output`; nothing: to a closed one.
[[noreturn]] void print_to(const char* output, std::size_t bytes, const char* argument = "say") {
  const int opened = output == nullptr ? -1 : ::open(output, O_WRONLY);
  if (opened >= 0) ::dup2(opened, 1);
  ::close(output == nullptr ? 1 : opened);
  CLI::App app;
  app.name("prog");
  app.set_version_flag("--version", "1");
  int exit_code = 1;
  app.add_subcommand("say", "")->callback([&] { fmt::print("{}", std::string(bytes, 'x')); });
  const char* const argv[] = {"prog", argument};
  std::_Exit(run_command_line(app, 2, argv, exit_code));
}

TEST(CommandLineDeathTest, OutputThatCannotBeWrittenIsAnErrorOfEveryCommand) {
  EXPECT_EXIT(print_to("/dev/null", 10), testing::ExitedWithCode(1), "^$");
  // Little fails at the end of the command, much while it prints.
  EXPECT_EXIT(print_to("/dev/full", 1), testing::ExitedWithCode(3),
              "prog: standard output cannot be written: No space");
  EXPECT_EXIT(print_to(nullptr, 1), testing::ExitedWithCode(3), "prog: standard output cannot be written: Bad file");
  for (const char* output : {"/dev/full", static_cast<const char*>(nullptr)})
    EXPECT_EXIT(print_to(output, 100'000), testing::ExitedWithCode(3), "prog: standard output cannot be written");
  for (const char* help : {"--help", "help", "--version"})
    EXPECT_EXIT(print_to("/dev/full", 0, help), testing::ExitedWithCode(3),
                "standard output cannot be written: No space");
  // A command that prints nothing does not need it.
  EXPECT_EXIT(print_to(nullptr, 0), testing::ExitedWithCode(1), "^$");
}

[[noreturn]] void run_out_of_memory(bool in_a_thread) {
  CLI::App app;
  int exit_code = 0;
  app.add_subcommand("say", "")->callback([&] {
    if (!in_a_thread) throw std::bad_alloc();
    std::thread([] { throw std::bad_alloc(); }).join();
  });
  const char* const argv[] = {"prog", "say"};
  std::_Exit(run_command_line(app, 2, argv, exit_code));
}

TEST(CommandLineDeathTest, WantOfMemoryIsOneLineAndTheExitCodeOfErrors) {
  for (const bool in_a_thread : {false, true})
    EXPECT_EXIT(run_out_of_memory(in_a_thread), testing::ExitedWithCode(3), "^plumb: out of memory[^\n]*\n$");
}

[[noreturn]] void give_numbers(const char* first, const char* second) {
  CLI::App app;
  app.name("prog");
  int exit_code = 0, number = 0;
  takes_whole(app.add_subcommand("say", "")->add_option("--number", number), 0, 100);
  const char* const argv[] = {"prog", "say", "--number", first, "--number", second};
  std::_Exit(run_command_line(app, second == nullptr ? 4 : 6, argv, exit_code));
}

TEST(CommandLineDeathTest, AnOptionGivenTwiceIsToldSo) {
  EXPECT_EXIT(give_numbers("080", nullptr), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(give_numbers("80", "080"), testing::ExitedWithCode(3),
              "^prog: --number: is given more than once; prog say");
}

}  // namespace
}  // namespace plumb::server
