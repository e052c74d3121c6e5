#pragma once

#include "base/result.h"
#include "server/serve_command.h"

namespace plumb::server {

/// The ModelLoader of the servers we ship: a checkpoint folder, its encoding, and a generator in this process.
Result<ServedModel> load_local_model(const ServeOptions& options, const Settings& settings);

}  // namespace plumb::server
