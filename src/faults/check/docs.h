#pragma once

#include <string>

namespace plumb::faults {

/// docs/faults.md: the table of plants with what is recorded of each.
std::string faults_document();

}  // namespace plumb::faults
