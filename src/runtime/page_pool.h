#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/result.h"

namespace plumb {

/// A fixed number of equally large pages with reference counts, planned at start. Not for use from two threads.
class PagePool {
 public:
  /// `page_count` pages of `page_floats` f32. Memory is reserved now and touched on first use.
  /// Errors: the system does not give that much.
  static Result<PagePool> make(std::int64_t page_count, std::int64_t page_floats);

  /// A page with reference count 1 and unspecified content, or -1 when all are in use.
  int take();
  /// One more owner of a page in use.
  void share(int page);
  /// One owner less; the last one frees the page.
  void release(int page);

  int owner_count(int page) const { return references_[static_cast<std::size_t>(page)]; }

  /// The digest (XXH3) of what the page holds now. Remembered until somebody may write to pages in use: a burst of hits
  /// on one prefix reads its pages once.
  std::uint64_t current_digest(int page);
  /// To be called before a forward pass: forgets all digests. Every page counts as written to, not only those that the
  /// pass should write, because a stray write is what digests are there to find.
  void before_writes() { ++epoch_; }

  float* data(int page) const { return memory_.get() + page * page_floats_; }
  std::int64_t page_floats() const { return page_floats_; }
  std::int64_t page_count() const { return static_cast<std::int64_t>(references_.size()); }
  std::int64_t free_count() const { return static_cast<std::int64_t>(free_.size()); }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<float, Free>;
  PagePool(std::int64_t page_count, std::int64_t page_floats, Memory memory);

  std::int64_t page_floats_;
  Memory memory_;
  std::vector<int> references_;
  struct Digest {
    std::uint64_t epoch = 0;
    std::uint64_t value = 0;
  };
  std::vector<Digest> digests_;  // valid in the epoch they were taken in
  std::uint64_t epoch_ = 1;
  std::vector<int> free_;
};

}  // namespace plumb
