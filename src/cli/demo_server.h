#pragma once

#include "base/result.h"
#include "investigator/demo.h"

namespace plumb::cli {

/// What the demo deploys: the shipped checkpoint under plumb-faulty with every switch of the table. Errors: no
/// checkpoint beside this executable's repository.
Result<investigator::DemoOptions> demo_server();

}  // namespace plumb::cli
