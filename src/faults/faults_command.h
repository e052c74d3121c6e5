#pragma once

namespace CLI {
class App;
}

namespace plumb::faults {

/// Adds `faults` to plumb-faulty: lists the plants, measures them (--check), writes their document (--docs).
void add_faults_command(CLI::App& app, int& exit_code);

}  // namespace plumb::faults
