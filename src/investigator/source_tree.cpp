#include "investigator/source_tree.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/durable_file.h"
#include "base/process.h"
#include "investigator/log_tail.h"
#include "investigator/run_program.h"
#include "investigator/secrets.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

namespace fs = std::filesystem;
using Argv = std::vector<std::string>;

constexpr double kGitTimeoutS = 600;
constexpr std::size_t kShownBytes = 2000;
constexpr int kShownLines = 50;
fs::path part_of(const fs::path& tree) { return tree.string() + ".part"; }

constexpr const char* kOurs = ".git/plumb-tree";  // lies in every tree of ours

// Neither hooks, nor a user's configuration of signing, line ends or aliases, nor a GIT_DIR of a git that started us.
Command git(const fs::path& folder, const Argv& arguments) {
  Command command;
  command.argv = {"env",
                  "-u",
                  "GIT_DIR",
                  "-u",
                  "GIT_WORK_TREE",
                  "-u",
                  "GIT_INDEX_FILE",
                  "git",
                  "-C",
                  folder.string(),
                  "-c",
                  "core.hooksPath=/dev/null",
                  "-c",
                  "commit.gpgSign=false",
                  "-c",
                  "core.autocrlf=false",
                  "-c",
                  "user.name=plumb",
                  "-c",
                  "user.email=plumb@localhost",
                  "-c",
                  "protocol.file.allow=always",
                  "-c",
                  "advice.detachedHead=false",
                  "-c",
                  "diff.autoRefreshIndex=false"};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  command.env = {{"GIT_TERMINAL_PROMPT", "0"}, {"GIT_OPTIONAL_LOCKS", "0"}, {"LC_ALL", "C"}};
  return command;
}

Result<std::string> run_git(const fs::path& folder, const Argv& arguments) {
  auto output = run_program(git(folder, arguments), kGitTimeoutS);
  if (!output) return tl::unexpected(output.error());
  if (!output->ok())
    return error("git {} in {}: {}", arguments.at(0), folder.string(), printable(output->text, kShownBytes));
  while (!output->text.empty() && output->text.back() == '\n') output->text.pop_back();
  return std::move(output->text);
}

class Tree {
 public:
  Tree(const fs::path& repository, const fs::path& tree) : repository_(fs::absolute(repository)), tree_(tree) {}

  // As the repository is now.
  Result<void> refresh() {
    const auto top = run_git(repository_, {"rev-parse", "--show-toplevel"});
    if (!top) return error("[source] repository: {}", top.error().message);
    const auto commit = run_git(repository_, {"rev-parse", "--verify", "HEAD"});
    if (!commit) return error("[source] repository: {}", commit.error().message);
    std::error_code ignored;
    if (!fs::exists(tree_ / kOurs, ignored))
      if (auto cloned = clone(*top); !cloned) return cloned;
    for (const Argv& step : {Argv{"reset", "--quiet", "--hard"}, Argv{"clean", "--quiet", "-ffd"},
                             Argv{"checkout", "--quiet", "--force", "--detach", *commit}})
      if (const auto done = run_git(tree_, step); !done) return tl::unexpected(done.error());
    return apply_local_changes(*top);
  }

  // A patch file, or what git understands as a commit or range.
  Result<void> apply(const std::string& patch) {
    std::error_code ignored;
    if (fs::is_regular_file(patch, ignored)) {
      const auto done = run_git(tree_, {"apply", "--index", fs::absolute(patch).string()});
      if (!done) return tl::unexpected(done.error());
      return {};
    }
    if (patch.starts_with("-")) return error("\"{}\" is neither a patch file nor a commit", patch);
    const bool range = patch.find("..") != std::string::npos;
    // As hashes: names such as main~3 may mean something else in the tree, or nothing.
    const auto known = range ? run_git(repository_, {"rev-parse", "--revs-only", patch})
                             : run_git(repository_, {"rev-parse", "--verify", "--quiet", patch + "^{commit}"});
    if (!known || known->empty())
      return error("\"{}\" is neither a patch file nor a commit of {}", patch, repository_.string());
    // The changes so far are in the index; a revert wants to begin from a commit.
    if (const auto kept = run_git(tree_, {"commit", "--quiet", "--allow-empty", "--no-verify", "-m", "before"}); !kept)
      return tl::unexpected(kept.error());
    Argv revert{"revert", "--no-edit"};
    std::istringstream hashes(*known);
    for (std::string hash; hashes >> hash;) revert.push_back(hash);
    const auto done = run_git(tree_, revert);
    if (!done) {
      (void)run_git(tree_, {"revert", "--abort"});
      return tl::unexpected(done.error());
    }
    return {};
  }

 private:
  // Under another name until it is whole, so that a kill leaves either a tree of ours or what we may remove.
  Result<void> clone(const std::string& from) {
    std::error_code ignored;
    if (fs::exists(tree_, ignored) && !fs::is_empty(tree_, ignored))
      return error("{}: is no working tree of plumb's: remove it or choose another case folder", tree_.string());
    const fs::path part = part_of(tree_);
    fs::remove_all(part, ignored);
    fs::create_directories(fs::absolute(part).parent_path(), ignored);
    const auto done = run_git(fs::absolute(part).parent_path(),
                              {"clone", "--quiet", "--shared", "--no-checkout", from, fs::absolute(part).string()});
    if (!done) return tl::unexpected(done.error());
    if (auto marked = write_file_durably(part / kOurs, from + "\n"); !marked) return marked;
    fs::remove(tree_, ignored);
    std::error_code failed;
    fs::rename(part, tree_, failed);
    if (failed) return error("{}: cannot be renamed: {}", part.string(), failed.message());
    return {};
  }

  Result<void> apply_local_changes(const std::string& top) {
    const fs::path file = fs::absolute(tree_ / ".git" / "plumb-local-changes");
    const auto changes =
        run_git(top, {"diff", "--binary", "--no-ext-diff", "--no-textconv", "--output=" + file.string(), "HEAD"});
    if (!changes) return tl::unexpected(changes.error());
    std::error_code ignored;
    if (fs::file_size(file, ignored) == 0) return {};
    const auto done = run_git(tree_, {"apply", "--index", "--whitespace=nowarn", file.string()});
    if (!done) return error("the changes of {} that are not committed: {}", top, done.error().message);
    return {};
  }

  fs::path repository_, tree_;
};

tl::unexpected<SourceFailure> failed(bool of_variant, std::string message) {
  return tl::unexpected(SourceFailure{of_variant, std::move(message)});
}

}  // namespace

tl::expected<void, SourceFailure> prepare_source_tree(const Deployment& deployment, const Variant& variant,
                                                      const fs::path& tree_folder, const fs::path& build_log) {
  Tree tree(deployment.source.repository, tree_folder);
  if (auto fresh = tree.refresh(); !fresh) return failed(false, fresh.error().message);
  for (const AppliedSide& applied : applied_sides(deployment, variant)) {
    if (applied.side->patch.empty()) continue;
    if (auto done = tree.apply(applied.side->patch); !done)
      return failed(true, fmt::format("switch {}: the patch {} cannot be applied: {}", applied.spec->name,
                                      applied.side->patch, done.error().message));
  }
  if (deployment.source.build.empty()) return {};
  const Command build{deployment.source.build, {}, fs::absolute(tree_folder).string()};
  const auto output = run_program(build, deployment.source.build_timeout_s);
  if (!output) return failed(false, "[source] build: " + output.error().message);
  std::error_code ignored;
  fs::create_directories(build_log.parent_path(), ignored);
  if (auto kept = write_file_durably(build_log, without_secrets(output->text)); !kept)
    return failed(false, kept.error().message);
  if (output->ok()) return {};
  return failed(true, fmt::format("[source] build: {}; the last lines of {}:\n{}", describe_exit_status(output->status),
                                  build_log.string(), tail_of_log(build_log, 0, kShownLines)));
}

Result<void> remove_source_tree(const fs::path& tree) {
  std::error_code failed;
  fs::remove_all(part_of(tree), failed);
  if (!fs::exists(tree, failed)) return {};
  if (!fs::exists(tree / kOurs, failed) && !fs::is_empty(tree, failed))
    return error("{}: is no working tree of plumb's, so it is left alone", tree.string());
  fs::remove_all(tree, failed);
  if (failed) return error("{}: cannot be removed: {}", tree.string(), failed.message());
  return {};
}

}  // namespace plumb::investigator
