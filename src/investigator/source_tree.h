#pragma once

#include <filesystem>
#include <string>

#include <tl/expected.hpp>

#include "base/result.h"
#include "investigator/deployment.h"

namespace plumb::investigator {

struct SourceFailure {
  bool of_variant = false;  // a patch does not apply or the result does not build; else git or the repository failed
  std::string message;
};

/// Makes `tree` the working tree that a variant runs from: [source]'s repository as it is now (its commit and the
/// changes in its tracked files, not what git does not track), with the patches of the applied sides in their order: a
/// patch file is applied, a commit or range reverted. Then the build runs in it; its output goes to `build_log`.
///
/// The repository itself is only read: the tree is a clone of its own that borrows the repository's objects, so that
/// neither its checkout nor its list of worktrees changes, and a tree that a kill leaves behind is a folder and nothing
/// else. A tree that is there already is used again where it is ours, so that builds stay incremental: what is ignored
/// by git stays in it, everything else is as a fresh one.
tl::expected<void, SourceFailure> prepare_source_tree(const Deployment& deployment, const Variant& variant,
                                                      const std::filesystem::path& tree,
                                                      const std::filesystem::path& build_log);

/// Removes a tree that prepare_source_tree made; a folder that it did not make is left alone and is an error.
Result<void> remove_source_tree(const std::filesystem::path& tree);

}  // namespace plumb::investigator
