#include "model/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include <xxhash.h>

#include "base/check.h"

namespace plumb {
namespace {

constexpr std::uint64_t kFree = ~std::uint64_t{0};  // no key: ids are not negative

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::size_t slot_of(std::uint64_t key, std::size_t slots) {
  key *= 0x9e3779b97f4a7c15ull;
  return (key ^ key >> 32) & (slots - 1);
}

std::uint32_t hash_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

// At most half full, so that a search ends soon.
std::size_t slots_for(std::size_t entries) { return std::bit_ceil(2 * entries + 2); }

}  // namespace

Bpe::Bpe(std::vector<std::string> tokens, std::span<const Merge> merges)
    : tokens_(std::move(tokens)),
      pairs_(slots_for(merges.size()), Pair{kFree, kNoRank, -1}),
      words_(slots_for(tokens_.size()), Word{0, -1}),
      whole_(tokens_.size()) {
  for (std::uint32_t i = 0; i < merges.size(); ++i) {
    const std::uint64_t key = key_of(merges[i].left, merges[i].right);
    std::size_t slot = slot_of(key, pairs_.size());
    while (pairs_[slot].key != kFree) {
      CHECK(pairs_[slot].key != key);
      slot = (slot + 1) & (pairs_.size() - 1);
    }
    pairs_[slot] = {key, i, merges[i].product};
  }
  const auto count = static_cast<std::int32_t>(tokens_.size());
  for (std::int32_t id = 0; id < count; ++id)
    if (!bytes(id).empty()) insert_word(id);
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = find(std::string(1, static_cast<char>(byte)));
    CHECK(byte_ids_[byte] >= 0);
  }
  Scratch scratch;
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < count; ++id) {
    if (bytes(id).empty()) continue;
    ids.clear();
    merge(bytes(id), scratch, ids);
    whole_[static_cast<std::size_t>(id)] = ids.size() == 1;
    longest_ = std::max(longest_, bytes(id).size());
  }
}

const Bpe::Pair& Bpe::pair(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = key_of(left, right);
  std::size_t slot = slot_of(key, pairs_.size());
  while (pairs_[slot].key != key && pairs_[slot].key != kFree) slot = (slot + 1) & (pairs_.size() - 1);
  return pairs_[slot];
}

void Bpe::insert_word(std::int32_t id) {
  const std::uint32_t hash = hash_of(bytes(id));
  std::size_t slot = hash & (words_.size() - 1);
  while (words_[slot].id >= 0) {
    CHECK(words_[slot].hash != hash || bytes(words_[slot].id) != bytes(id));
    slot = (slot + 1) & (words_.size() - 1);
  }
  words_[slot] = {hash, id};
}

std::int32_t Bpe::find(std::string_view wanted) const {
  const std::uint32_t hash = hash_of(wanted);
  std::size_t slot = hash & (words_.size() - 1);
  while (words_[slot].id >= 0 && (words_[slot].hash != hash || bytes(words_[slot].id) != wanted))
    slot = (slot + 1) & (words_.size() - 1);
  return words_[slot].id;
}

void Bpe::append_ids(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (piece.size() <= longest_)
    if (const std::int32_t id = find(piece); id >= 0 && whole_[static_cast<std::size_t>(id)]) {
      ids.push_back(id);
      return;
    }
  merge(piece, scratch, ids);
}

void Bpe::merge(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  symbols.clear();
  heap.clear();
  const std::size_t end = piece.size();
  for (std::size_t i = 0; i < end; ++i)
    symbols.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], -1, kNoRank, i - 1, i + 1});
  // Looks up what the symbol at `at` and the next one make, and adds it to the heap's end.
  const auto rate = [&](std::size_t at) {
    Scratch::Symbol& symbol = symbols[at];
    symbol.rank = kNoRank;
    if (symbol.next == end) return false;
    const Pair& found = pair(symbol.id, symbols[symbol.next].id);
    symbol.rank = found.rank;
    symbol.product = found.product;
    if (found.rank == kNoRank) return false;
    heap.push_back({found.rank, at});
    return true;
  };
  for (std::size_t i = 0; i < end; ++i) rate(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const auto [best, at] = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    Scratch::Symbol& left = symbols[at];
    if (left.rank != best) continue;  // it has been merged, or has got another neighbour
    Scratch::Symbol& right = symbols[left.next];
    left.id = left.product;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next != end) symbols[left.next].previous = at;
    if (rate(at)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (at > 0 && rate(left.previous)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  for (std::size_t i = 0; i < end; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace plumb
