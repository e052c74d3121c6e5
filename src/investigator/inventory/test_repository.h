#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <git2.h>
#include <unistd.h>

#include "base/check.h"

namespace plumb::investigator::inventory {

/// A bare repository in a folder of its own, for tests. Commits are trees given as path -> content.
class TestRepository {
 public:
  TestRepository()
      : folder_((std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path()) /
                ("plumb-inventory-" + std::to_string(::getpid()) + "-" + std::to_string(next_++))) {
    git_libgit2_init();
    CHECK(git_repository_init(&repository_, folder_.c_str(), 1) == 0);
  }
  ~TestRepository() {
    git_repository_free(repository_);
    git_libgit2_shutdown();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestRepository(const TestRepository&) = delete;
  TestRepository& operator=(const TestRepository&) = delete;

  /// Commits the tree on HEAD and returns the commit's id. A path in `modes` gets that mode and, as submodule, its
  /// content as id.
  std::string commit(const std::map<std::string, std::string>& files,
                     const std::map<std::string, git_filemode_t>& modes = {}) {
    git_index* index = nullptr;
    CHECK(git_repository_index(&index, repository_) == 0 && git_index_clear(index) == 0);
    for (const auto& [path, content] : files) {
      git_index_entry entry{};
      entry.path = path.c_str();
      const auto mode = modes.find(path);
      entry.mode = mode == modes.end() ? GIT_FILEMODE_BLOB : mode->second;
      if (entry.mode == GIT_FILEMODE_COMMIT) {
        CHECK(git_oid_fromstr(&entry.id, content.c_str()) == 0);
        CHECK(git_index_add(index, &entry) == 0);
      } else {
        CHECK(git_index_add_from_buffer(index, &entry, content.data(), content.size()) == 0);
      }
    }
    git_oid tree_id, commit_id, parent_id;
    git_tree* tree = nullptr;
    CHECK(git_index_write_tree_to(&tree_id, index, repository_) == 0 &&
          git_tree_lookup(&tree, repository_, &tree_id) == 0);
    git_signature* who = nullptr;
    CHECK(git_signature_new(&who, "test", "test@localhost", 0, 0) == 0);
    git_commit* parent = nullptr;
    if (git_reference_name_to_id(&parent_id, repository_, "HEAD") == 0)
      CHECK(git_commit_lookup(&parent, repository_, &parent_id) == 0);
    const git_commit* parents[] = {parent};
    CHECK(git_commit_create(&commit_id, repository_, "HEAD", who, who, nullptr, "c", tree, parent ? 1 : 0, parents) ==
          0);
    git_commit_free(parent);
    git_signature_free(who);
    git_tree_free(tree);
    git_index_free(index);
    char text[GIT_OID_HEXSZ + 1];
    return git_oid_tostr(text, sizeof text, &commit_id);
  }

  const std::filesystem::path& folder() const { return folder_; }

 private:
  static inline int next_ = 0;
  std::filesystem::path folder_;
  git_repository* repository_ = nullptr;
};

}  // namespace plumb::investigator::inventory
