#pragma once

// What the operator gives beside the deployment file, and its copies in the case folder.

#include <filesystem>
#include <string>

#include "base/result.h"
#include "investigator/deployment.h"

namespace plumb::investigator {

/// Reads the files that are named (an empty name: none) into `deployment.given`. Errors: of the files, with their
/// names.
Result<void> take_given(Deployment& deployment, const std::string& conversation_file, const std::string& ranks_file);

/// Copies what is given into the case folder, readable by its owner alone, and removes copies of what is not.
Result<void> keep_given(const std::filesystem::path& case_dir, const Deployment& deployment);

/// From now on reports of this case show prompts and replies by length and hash alone, and what is asked from now on is
/// recorded so. What its journal holds already stays.
Result<void> redact_case(const std::filesystem::path& case_dir);

/// Reads the copies of what is not given already.
Result<void> read_given(const std::filesystem::path& case_dir, Deployment& deployment);

}  // namespace plumb::investigator
