#include "investigator/inventory/diff.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <git2.h>

namespace plumb::investigator::inventory {
namespace {

template <auto Free>
struct Freer {
  void operator()(auto* p) const { Free(p); }
};
using Repository = std::unique_ptr<git_repository, Freer<git_repository_free>>;
using Object = std::unique_ptr<git_object, Freer<git_object_free>>;
using Tree = std::unique_ptr<git_tree, Freer<git_tree_free>>;
using Diff = std::unique_ptr<git_diff, Freer<git_diff_free>>;
using Patch = std::unique_ptr<git_patch, Freer<git_patch_free>>;
using Blob = std::unique_ptr<git_blob, Freer<git_blob_free>>;

struct Library {
  Library() { git_libgit2_init(); }
  ~Library() { git_libgit2_shutdown(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

std::string last_message() {
  const git_error* e = git_error_last();
  return e && e->message ? e->message : "no reason given";
}

std::string hex(const git_oid& id) {
  char text[GIT_OID_HEXSZ + 1];
  return git_oid_tostr(text, sizeof text, &id);
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const int more = c < 0x80                ? 0
                     : c >= 0xC2 && c < 0xE0 ? 1
                     : c >= 0xE0 && c < 0xF0 ? 2
                     : c >= 0xF0 && c < 0xF5 ? 3
                                             : -1;
    if (more < 0 || i + static_cast<std::size_t>(more) >= text.size()) return false;
    for (int k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]) & 0xC0) != 0x80) return false;
    i += static_cast<std::size_t>(more) + 1;
  }
  return true;
}

class Reader {
 public:
  Reader(git_repository* repository, RangeDiff& out) : repository_(repository), out_(out) {}

  Result<void> read(git_diff* diff) {
    const std::size_t count = git_diff_num_deltas(diff);
    for (std::size_t i = 0; i < count; ++i)
      if (auto done = read_delta(diff, i); !done) return done;
    return {};
  }

 private:
  Result<void> read_delta(git_diff* diff, std::size_t index) {
    const git_diff_delta* delta = git_diff_get_delta(diff, index);
    DiffCounts& n = out_.counts;
    ++n.changed;
    ChangedFile file;
    file.old_path = delta->old_file.path;
    file.path = delta->status == GIT_DELTA_DELETED ? delta->old_file.path : delta->new_file.path;
    if (delta->old_file.mode == GIT_FILEMODE_COMMIT || delta->new_file.mode == GIT_FILEMODE_COMMIT) {
      ++n.submodules;
      out_.notes.push_back(fmt::format("{}: a submodule moved from {} to {}; its changes are in its own repository",
                                       file.path, hex(delta->old_file.id).substr(0, 12),
                                       hex(delta->new_file.id).substr(0, 12)));
      return {};
    }
    if (delta->old_file.mode == GIT_FILEMODE_LINK || delta->new_file.mode == GIT_FILEMODE_LINK)
      return ++n.links, Result<void>{};
    file.role = role_of(file.path);
    if (file.role == Role::docs) return ++n.docs, Result<void>{};
    if (language_of(file.path, "") == Language::none) return ++n.other_language, Result<void>{};
    for (auto [side, text] :
         {std::pair{&delta->old_file, &file.old_text}, std::pair{&delta->new_file, &file.new_text}}) {
      if (git_oid_is_zero(&side->id)) continue;
      git_blob* raw = nullptr;
      if (git_blob_lookup(&raw, repository_, &side->id) != 0)
        return error(
            "{}: its content {} is not in the repository ({}); fetch it (a partial clone keeps only what was needed)",
            file.path, hex(side->id), last_message());
      const Blob blob(raw);
      const auto bytes = static_cast<std::size_t>(git_blob_rawsize(blob.get()));
      if (bytes > kHugeBytes) {
        ++n.huge;
        out_.notes.push_back(fmt::format("{}: {} bytes, above {}; not read", file.path, bytes, kHugeBytes));
        return {};
      }
      if (git_blob_is_binary(blob.get()) != 0) return ++n.binary, Result<void>{};
      text->assign(static_cast<const char*>(git_blob_rawcontent(blob.get())), bytes);
    }
    file.language = language_of(file.path, file.new_text.empty() ? file.old_text : file.new_text);
    if (!is_utf8(file.old_text) || !is_utf8(file.new_text)) {
      ++n.not_utf8;
      out_.notes.push_back(fmt::format("{}: not UTF-8; read byte by byte", file.path));
    }
    if (auto done = read_hunks(diff, index, file); !done) return done;
    ++n.read;
    n.tests += file.role == Role::test;
    n.converters += file.role == Role::converter;
    out_.files.push_back(std::move(file));
    return {};
  }

  static Result<void> read_hunks(git_diff* diff, std::size_t index, ChangedFile& file) {
    git_patch* raw = nullptr;
    if (git_patch_from_diff(&raw, diff, index) != 0) return error("{}: no patch: {}", file.path, last_message());
    const Patch patch(raw);
    if (!patch) return {};
    const std::size_t hunks = git_patch_num_hunks(patch.get());
    for (std::size_t h = 0; h < hunks; ++h) {
      const git_diff_hunk* head = nullptr;
      std::size_t lines = 0;
      if (git_patch_get_hunk(&head, &lines, patch.get(), h) != 0) return error("{}: {}", file.path, last_message());
      Hunk hunk{head->old_start, head->old_lines, head->new_start, head->new_lines, {}, {}};
      int old_next = std::max(head->old_start, 1), new_next = std::max(head->new_start, 1);
      for (std::size_t l = 0; l < lines; ++l) {
        const git_diff_line* line = nullptr;
        if (git_patch_get_line_in_hunk(&line, patch.get(), h, l) != 0)
          return error("{}: {}", file.path, last_message());
        if (line->origin == GIT_DIFF_LINE_CONTEXT) old_next = line->old_lineno + 1, new_next = line->new_lineno + 1;
        if (line->origin == GIT_DIFF_LINE_DELETION) {
          hunk.removed.push_back({line->old_lineno, new_next});
          old_next = line->old_lineno + 1;
        }
        if (line->origin == GIT_DIFF_LINE_ADDITION) {
          hunk.added.push_back({line->new_lineno, old_next});
          new_next = line->new_lineno + 1;
        }
      }
      file.hunks.push_back(std::move(hunk));
    }
    return {};
  }

  git_repository* repository_;
  RangeDiff& out_;
};

struct Ends {
  std::string from, to;
  bool merge_base = false;
};

Result<Ends> parse_range(std::string_view range) {
  const std::size_t dots = range.find("..");
  if (dots == std::string_view::npos)
    return error("'{}' is not a range of revisions; write A..B, for instance v1.0..HEAD", range);
  Ends ends;
  ends.merge_base = range.substr(dots, 3) == "...";
  ends.from = range.substr(0, dots);
  ends.to = range.substr(dots + (ends.merge_base ? 3 : 2));
  if (ends.from.empty() && ends.to.empty()) return error("'{}' names no revision; write A..B", range);
  if (ends.from.empty()) ends.from = "HEAD";
  if (ends.to.empty()) ends.to = "HEAD";
  return ends;
}

Result<git_oid> commit_of(git_repository* repository, const std::string& revision) {
  git_object* raw = nullptr;
  const std::string commit = revision + "^{commit}";
  if (git_revparse_single(&raw, repository, commit.c_str()) != 0)
    return error("revision '{}' is not in this repository{}", revision,
                 git_repository_is_shallow(repository) == 1
                     ? "; the clone is shallow: run `git fetch --unshallow` there, or deepen it"
                     : "; fetch it, or correct the name");
  const Object object(raw);
  return *git_object_id(object.get());
}

Result<Tree> tree_of(git_repository* repository, const git_oid& commit) {
  git_object* raw = nullptr;
  if (git_object_lookup(&raw, repository, &commit, GIT_OBJECT_COMMIT) != 0)
    return error("commit {}: {}", hex(commit), last_message());
  const Object object(raw);
  git_tree* tree = nullptr;
  if (git_commit_tree(&tree, reinterpret_cast<git_commit*>(object.get())) != 0)
    return error("tree of commit {}: {}", hex(commit), last_message());
  return Tree(tree);
}

}  // namespace

std::string Hunk::header() const {
  return fmt::format("@@ -{},{} +{},{} @@", old_start, old_lines, new_start, new_lines);
}

Result<RangeDiff> read_range(const std::filesystem::path& repository, std::string_view range) {
  const auto ends = parse_range(range);
  if (!ends) return tl::unexpected(ends.error());
  const Library library;
  git_repository* raw = nullptr;
  if (git_repository_open_ext(&raw, repository.c_str(), 0, nullptr) != 0)
    return error("{} is not a git repository that can be read: {}", repository.string(), last_message());
  const Repository repo(raw);
  auto from = commit_of(repo.get(), ends->from);
  if (!from) return tl::unexpected(from.error());
  const auto to = commit_of(repo.get(), ends->to);
  if (!to) return tl::unexpected(to.error());
  if (ends->merge_base) {
    git_oid base;
    if (git_merge_base(&base, repo.get(), &*from, &*to) != 0)
      return error("'{}' and '{}' have no common ancestor here ({}); write A..B", ends->from, ends->to, last_message());
    from = base;
  }
  RangeDiff out{hex(*from), hex(*to), {}, {}, {}};
  if (git_repository_is_shallow(repo.get()) == 1)
    out.notes.emplace_back(
        "the clone is shallow: both ends are there and were compared, the commits between may not be");
  const auto from_tree = tree_of(repo.get(), *from), to_tree = tree_of(repo.get(), *to);
  if (!from_tree) return tl::unexpected(from_tree.error());
  if (!to_tree) return tl::unexpected(to_tree.error());
  git_diff_options options = GIT_DIFF_OPTIONS_INIT;
  options.flags = GIT_DIFF_INCLUDE_TYPECHANGE;
  options.max_size = static_cast<git_off_t>(kHugeBytes);
  git_diff* raw_diff = nullptr;
  if (git_diff_tree_to_tree(&raw_diff, repo.get(), from_tree->get(), to_tree->get(), &options) != 0)
    return error("cannot compare {} with {}: {}", ends->from, ends->to, last_message());
  const Diff diff(raw_diff);
  git_diff_find_options renames = GIT_DIFF_FIND_OPTIONS_INIT;
  renames.flags = GIT_DIFF_FIND_RENAMES;
  if (git_diff_find_similar(diff.get(), &renames) != 0) return error("cannot look for renames: {}", last_message());
  if (auto done = Reader(repo.get(), out).read(diff.get()); !done) return tl::unexpected(done.error());
  return out;
}

}  // namespace plumb::investigator::inventory
