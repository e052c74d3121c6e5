#include "server/serve_command.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "server/local_model.h"

namespace plumb::cli {

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "serve a checkpoint over an OpenAI-compatible HTTP API");
  auto options = std::make_shared<server::ServeOptions>();
  server::add_serve_options(*command, *options);
  command->callback([options, &exit_code] { exit_code = server::run_serve(*options, &server::load_local_model); });
}

}  // namespace plumb::cli
