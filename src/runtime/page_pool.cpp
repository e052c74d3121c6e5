#include "runtime/page_pool.h"

#include <utility>

#include <xxhash.h>

#include "base/check.h"

namespace plumb {

Result<PagePool> PagePool::make(std::int64_t page_count, std::int64_t page_floats) {
  CHECK(page_count >= 0 && page_floats > 0);
  // calloc: the kernel hands out zero pages on first touch, so that a large plan costs nothing until it is used. It
  // also refuses a product that overflows.
  Memory memory(static_cast<float*>(
      std::calloc(static_cast<std::size_t>(page_count), static_cast<std::size_t>(page_floats) * sizeof(float))));
  if (memory == nullptr && page_count > 0)
    return error("the system does not give {} pages of {} bytes", page_count, page_floats * 4);
  return PagePool(page_count, page_floats, std::move(memory));
}

PagePool::PagePool(std::int64_t page_count, std::int64_t page_floats, Memory memory)
    : page_floats_(page_floats),
      memory_(std::move(memory)),
      references_(static_cast<std::size_t>(page_count), 0),
      digests_(static_cast<std::size_t>(page_count)) {
  for (std::int64_t page = page_count - 1; page >= 0; --page) free_.push_back(static_cast<int>(page));
}

int PagePool::take() {
  if (free_.empty()) return -1;
  const int page = free_.back();
  free_.pop_back();
  CHECK(references_[static_cast<std::size_t>(page)] == 0);
  references_[static_cast<std::size_t>(page)] = 1;
  digests_[static_cast<std::size_t>(page)] = {};
  return page;
}

std::uint64_t PagePool::current_digest(int page) {
  Digest& digest = digests_[static_cast<std::size_t>(page)];
  if (digest.epoch != epoch_)
    digest = {epoch_, XXH3_64bits(data(page), static_cast<std::size_t>(page_floats_) * sizeof(float))};
  return digest.value;
}

void PagePool::share(int page) {
  CHECK(references_[static_cast<std::size_t>(page)] > 0);
  ++references_[static_cast<std::size_t>(page)];
}

void PagePool::release(int page) {
  int& references = references_[static_cast<std::size_t>(page)];
  CHECK(references > 0);
  if (--references == 0) free_.push_back(page);
}

}  // namespace plumb
