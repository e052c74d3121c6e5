#pragma once

#include <cstdint>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace plumb::server {

/// Lets an option take whole numbers in [least, most], written in decimal, and nothing else. The refusal states the
/// range and not what was given, which may have any length.
CLI::Option* takes_whole(CLI::Option* option, std::int64_t least, std::int64_t most);

/// Same, any seed: a whole number in [0, 2^64).
CLI::Option* takes_seed(CLI::Option* option);

/// Same, finite numbers in [least, most].
CLI::Option* takes_number(CLI::Option* option, double least, double most);

/// Same, the name of a backend.
CLI::Option* takes_backend(CLI::Option* option);

/// Parses a command line `PROGRAM COMMAND ...` and runs the command. `help` prints the help, `help COMMAND` that of the
/// command. Returns `exit_code`, as the command's callback left it, or 3 with a message on stderr when the command is
/// unknown, its options are refused, or standard output could not be written to its end.
int run_command_line(CLI::App& app, int argc, const char* const* argv, const int& exit_code);

}  // namespace plumb::server
